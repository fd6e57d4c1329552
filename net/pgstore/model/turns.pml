/* Turns, leases and the fence of a thread in PostgreSQL, as steps that each happen whole.
 * Two hosts work for one consumer, on EV events.
 *
 * No clock is in here. That a lease is over by the server's clock, or by one that drifts or
 * jumps, is a step that can come at any time: the clock decides only when somebody else
 * may take the turn. turnmodel_test.go runs this, and once more with each planted bug.
 *
 * -DTROUBLE=n  how often a host is stopped or killed, a connection is cut, a lease is over
 *              too early, or another server becomes the primary
 */
#ifndef TROUBLE
#define TROUBLE 3
#endif
#define EV 2
#define NONE 7

/* where a host is */
#define IDLE 0     /* has no turn */
#define HAVE 1     /* thinks that it has it */
#define RAN 2      /* its handler has ended well; the result is to be stored */
#define WRITE 3    /* has the row's lock and has compared the fence */
#define UNKNOWN 4  /* its connection broke at COMMIT */
#define OVER 5     /* nothing is left */

byte st[2]; byte mine[2]; byte ev[2];
bool stopped[2]; bool forever[2]; /* it does not come back */
bool old[2];                      /* it is connected to the primary of before */
bool stored[2]; bool oldStored[2]; /* the number of its COMMIT is there, or on the old primary */
byte lock = NONE;                 /* who has locked the thread's row */
byte fence; byte oldFence; byte owner = NONE; bool over = true; /* the row of the turn */
byte pos; bool done[EV + 1];      /* results that are stored */
byte trouble = TROUBLE;
byte i;

#define up(s) (!stopped[s])

inline pop() {
	if :: mine[i] != fence -> st[i] = IDLE
	   :: mine[i] == fence && pos < EV -> ev[i] = pos + 1; st[i] = RAN
	   :: mine[i] == fence && pos == EV -> over = true; owner = NONE; st[i] = OVER
	fi
}
inline begin() {
	if :: mine[i] == fence -> stored[i] = false; lock = i; st[i] = WRITE
	   :: else -> st[i] = IDLE
	fi
}
inline acked() { assert(done[ev[i]]); st[i] = HAVE }
inline commit() {
	assert(mine[i] == fence);  /* no stale holder stores anything */
	assert(!done[ev[i]]);      /* and nothing twice */
	done[ev[i]] = true; pos++; stored[i] = true; lock = NONE;
	if :: acked()
	   :: trouble > 0 -> trouble--; st[i] = UNKNOWN /* the answer is lost */
	fi
}
/* resolve: it takes the lock, looks for its number, and commits something itself, which
   only the primary confirms */
inline resolve() {
	if :: stored[i] -> acked() :: else -> st[i] = RAN fi
}
inline take() { fence++; mine[i] = fence; owner = i; over = false; st[i] = HAVE }

#define free (lock == NONE)
#define canTake (free && over)
/* a session that waits in the middle of a write is ended by the server */
#define idleInWrite (lock != NONE && stopped[lock])
/* who does not renew: it has no turn any more, is stopped or was killed */
#define notRenewed (owner != NONE && !over && (stopped[owner] || st[owner] == IDLE || mine[owner] != fence))
#define canStep(s) (up(s) && (st[s] == IDLE && canTake || st[s] == HAVE && free || st[s] == RAN && (old[s] || free) || st[s] == WRITE || st[s] == UNKNOWN && (old[s] || free)))

inline step() {
	if
	:: st[i] == IDLE -> old[i] = false; take()
	:: st[i] == HAVE -> old[i] = false; pop()
	:: st[i] == RAN && !old[i] -> begin()
	:: st[i] == RAN && old[i] -> /* the old primary knows nothing of who came later */
		if :: mine[i] == oldFence -> stored[i] = false; st[i] = WRITE :: else -> st[i] = IDLE; old[i] = false fi
	:: st[i] == WRITE && !old[i] && lock == i -> commit()
	:: st[i] == WRITE && !old[i] && lock != i -> st[i] = RAN /* the server has ended its session */
	:: st[i] == WRITE && old[i] -> oldStored[i] = true; st[i] = UNKNOWN /* no standby confirms it */
	:: st[i] == UNKNOWN && old[i] -> old[i] = false
	:: st[i] == UNKNOWN && !old[i] -> resolve()
	fi
}
inline kill() { if :: lock == i -> lock = NONE :: else fi; st[i] = IDLE; stopped[i] = false; old[i] = false }
inline cut() { if :: st[i] == WRITE && lock == i -> lock = NONE; st[i] = UNKNOWN :: else fi }
inline change() {
	lock = NONE; oldFence = fence; i = 0;
	do
	:: i < 2 -> if :: st[i] == RAN -> old[i] = true :: st[i] == WRITE && !old[i] -> st[i] = UNKNOWN :: true -> if :: st[i] == WRITE && !old[i] -> st[i] = UNKNOWN :: else fi fi; i++
	:: else -> break
	od
}

init {
	do
	:: atomic { canStep(0) -> i = 0; step(); i = 0 }
	:: atomic { canStep(1) -> i = 1; step(); i = 0 }
	:: atomic { idleInWrite -> lock = NONE }
	:: atomic { notRenewed -> over = true }
	:: atomic { stopped[0] && !forever[0] -> stopped[0] = false }
	:: atomic { stopped[1] && !forever[1] -> stopped[1] = false }

	:: atomic { trouble > 0 && up(0) && st[0] != OVER -> trouble--; i = 0; stopped[0] = true; if :: !forever[1] -> forever[0] = true :: true fi }
	:: atomic { trouble > 0 && up(1) && st[1] != OVER -> trouble--; i = 0; stopped[1] = true; if :: !forever[0] -> forever[1] = true :: true fi }
	:: atomic { trouble > 0 && !forever[0] && st[0] != OVER -> trouble--; i = 0; kill(); i = 0 }
	:: atomic { trouble > 0 && !forever[1] && st[1] != OVER -> trouble--; i = 1; kill(); i = 0 }
	:: atomic { trouble > 0 && st[0] == WRITE -> trouble--; i = 0; cut(); i = 0 }
	:: atomic { trouble > 0 && st[1] == WRITE -> trouble--; i = 1; cut(); i = 0 }
	:: atomic { trouble > 0 && owner != NONE && !over -> trouble--; over = true } /* a clock jumps */
	:: atomic { trouble > 0 -> trouble--; change(); i = 0 }
	:: else -> break
	od;
	assert(pos == EV) /* every turn was taken again */
}
