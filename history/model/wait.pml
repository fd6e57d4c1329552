/* A run that waits, as steps that are each one transaction, and between any two of
 * which a worker may be killed. One run, two workers, a person who answers, an event,
 * another run, the time of the wait, and a cancellation.
 *
 * Where the steps are in the code:
 *
 *	ask       Run.Wait, wait.go
 *	park      Tx.park and Tx.finish, wait.go and run.go
 *	answer    Tx.answer and Tx.continueRun, wait.go
 *	approve   History.Answer, wait.go
 *	depEnds   Tx.ended, join.go
 *	look      History.release, its View, ready.go
 *	list      History.eventWaits, waitevent.go
 *	event     History.answerEvent, waitevent.go
 *	times     History.release, its Update, and Tx.due, ready.go
 *	claim     Tx.take, ready.go
 *	fails     Tx.again, job.go
 *	recover   History.recoverOne, recover.go
 *	cancel    History.Cancel, run.go
 *
 * -DKILLS=n  how many workers are killed
 */
#define APPROVAL 0
#define EVENT 1
#define RUN 2
#define TIME 3
#ifndef KILLS
#define KILLS 2
#endif
#define WORKERS 2
#define NOBODY 9

/* the status of the run */
#define QUEUED 0
#define RUNNING 1
#define WAITING 2
#define ENDED 3
#define CANCELLED 4

/* the step of the wait */
#define NONE 0
#define ASKED 1
#define ANSWERED 2

/* the results of an answer; 0 for none */
#define APPROVED 1
#define DENIED 2
#define HAPPENED 3
#define DEPENDED 4
#define TIMEDOUT 5

/* where a worker is */
#define IDLE 0
#define LOOKED 1   /* knows what was due */
#define LISTED 2   /* knows which runs wait for an event */
#define FOUND 3    /* has an event */
#define TIMES 4    /* has looked for events */
#define CLAIMS 5
#define BEGUN 6    /* its command runs */
#define PARKS 7    /* its command was told to wait */
#define ENDS 8     /* its command has the answer */

byte kind;              /* what the run waits for */
bool timed;             /* the wait has a time */
byte status, step, result, seen, told;
bool wait;              /* the job of the run has the wait */
bool cancelled;         /* cancel_requested_at */
byte owner = NOBODY;    /* the worker that has the lock of the run */
bool late;              /* the time of the wait has come */
bool depEnded, inTime, tooLate, parked;
byte kills = KILLS, fails = 1, cancels = 1, answers = 2;
byte looks = 1;         /* how often a worker looks when there is nothing to do */

byte pc[WORKERS]; bool due[WORKERS]; bool asked[WORKERS];
byte i;

#define over (status == ENDED || status == CANCELLED)

inline continueRun() { wait = false; status = QUEUED }

inline answer(r) {
	assert(step == ASKED);                 /* one answer counts */
	assert(r != TIMEDOUT || late);
	assert(r != TIMEDOUT || !inTime);      /* an event that came in time is the answer */
	step = ANSWERED; result = r;
	if :: status == WAITING -> continueRun() :: else fi
}

/* The command calls Wait. The first call stores what is waited for. */
inline ask() {
	if
	:: step == ANSWERED ->
		assert(seen == NONE || seen == result);
		seen = result; pc[i] = ENDS
	:: step == ASKED -> wait = true; pc[i] = PARKS
	:: step == NONE -> wait = true; step = ASKED;
		if
		:: kind == RUN && depEnded -> answer(DEPENDED); seen = result; pc[i] = ENDS
		:: else -> pc[i] = PARKS
		fi
	fi
}

inline leave() { owner = NOBODY; pc[i] = IDLE }

/* The attempt ends as one that waits. */
inline park() {
	if
	:: cancelled -> status = CANCELLED
	:: !cancelled && step == ANSWERED -> continueRun()
	:: !cancelled && step == ASKED ->
		status = WAITING; parked = true;
		if :: kind == RUN && depEnded -> answer(DEPENDED) :: else fi
	fi;
	leave()
}

/* The command ends, or fails and is tried again. */
inline finish(s) {
	if :: cancelled -> status = CANCELLED :: else -> status = s fi;
	leave()
}

inline look() { due[i] = late; asked[i] = false; if :: kind == EVENT && status == WAITING -> pc[i] = LOOKED :: else -> pc[i] = TIMES fi }

inline list() { asked[i] = status == WAITING; if :: asked[i] && (inTime || tooLate) -> pc[i] = FOUND :: else -> pc[i] = TIMES fi }

/* The first event that matches is the one in time, if there is one. */
inline event() {
	if
	:: status == WAITING && inTime -> answer(HAPPENED)
	:: else
	fi;
	pc[i] = TIMES
}

inline times() {
	if
	:: timed && status == WAITING && due[i] && (kind != EVENT || asked[i]) -> answer(TIMEDOUT)
	:: else
	fi;
	pc[i] = CLAIMS
}

inline claim() {
	if
	:: status == QUEUED ->
		assert(owner == NOBODY);           /* two workers never have the run */
		status = RUNNING; owner = i; pc[i] = BEGUN
	:: else -> pc[i] = IDLE
	fi
}

/* What a worker has to do when it has nothing to do. */
#define ready (status == QUEUED)
#define eventCame (kind == EVENT && status == WAITING && inTime)
#define timeCame (timed && status == WAITING && late)
#define lost (status == RUNNING && owner == NOBODY)

inline work() {
	if
	:: pc[i] == IDLE && lost -> if :: cancelled -> status = CANCELLED :: else -> status = QUEUED fi /* recover */
	:: pc[i] == IDLE && !lost -> look()
	:: pc[i] == LOOKED -> list()
	:: pc[i] == FOUND -> event()
	:: pc[i] == TIMES -> times()
	:: pc[i] == CLAIMS -> claim()
	:: pc[i] == BEGUN -> ask()
	:: pc[i] == BEGUN && fails > 0 -> fails--; finish(QUEUED)
	:: pc[i] == PARKS -> park()
	:: pc[i] == PARKS && fails > 0 -> fails--; finish(QUEUED)
	:: pc[i] == ENDS -> finish(ENDED)
	fi
}
#define canWork(w) (pc[w] != IDLE || ready || eventCame || timeCame || lost)

/* History.Answer returns nil: this answer is the one that counts, for good. */
inline approve(r) {
	if
	:: !over && wait && kind == APPROVAL && step == ASKED -> answer(r); told = r
	:: else
	fi
}

init {
	if :: kind = APPROVAL :: kind = EVENT :: kind = RUN :: kind = TIME fi;
	if :: timed = true :: kind != TIME fi;
	do
	:: atomic { answers > 0 && step != NONE -> answers--; if :: true -> approve(APPROVED) :: true -> approve(DENIED) fi }
	:: atomic { kind == RUN && !depEnded -> depEnded = true; if :: status == WAITING -> answer(DEPENDED) :: else fi }
	:: atomic { kind == EVENT && step != NONE && !late && !inTime -> inTime = true }
	:: atomic { kind == EVENT && step != NONE && late && !inTime && !tooLate -> tooLate = true }
	:: atomic { !late && step != NONE -> late = true }
	:: atomic { cancels > 0 && !over -> cancels--;
		if :: true -> cancelled = true; if :: status == RUNNING :: else -> status = CANCELLED fi
		   :: true /* it is not cancelled */
		fi }
	:: atomic { kills > 0 && pc[0] != IDLE -> kills--; i = 0; if :: owner == 0 -> owner = NOBODY :: else fi; pc[0] = IDLE }
	:: atomic { kills > 0 && pc[1] != IDLE -> kills--; if :: owner == 1 -> owner = NOBODY :: else fi; pc[1] = IDLE }
	:: atomic { canWork(0) -> i = 0; work(); i = 0 }
	:: atomic { canWork(1) -> i = 1; work(); i = 0 }
	:: atomic { looks > 0 && pc[0] == IDLE && status == WAITING -> looks--; look(); i = 0 }
	:: else -> break
	od;
	/* Nothing can happen any more. */
	assert(owner == NOBODY);
	assert(!cancelled || status == CANCELLED || status == ENDED);
	assert(over || status == WAITING && step == ASKED);    /* nothing is stuck with its answer */
	assert(told == 0 || result == told);
	assert(status != ENDED || seen == result && result != 0);
	assert(over || !timed && (kind == APPROVAL && told == 0 || kind == EVENT && !inTime))
}
