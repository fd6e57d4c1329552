/* How a push becomes a run, as a system of steps that each happen whole, and
 * between any two of which a process may be killed. Two consumers, three pushes.
 *
 * The names of the steps stand in the code where they are ("model: look").
 * dispatch/model_test.go runs this, and runs it once more with each planted bug.
 *
 * A supervisor, a standby and a server are seats. What a seat knows is in arrays, by
 * its number; what is in the directory is in arrays by consumer.
 *
 * -DKILLS=n  how many kills there are
 * -DANY      any process may be killed at any time, and the next dispatch mends it;
 *            otherwise, of a process and the one that takes over from it, one at a
 *            time, and nobody has to come
 */
#ifndef KILLS
#define KILLS 2
#endif
#ifndef PUSHES
#define PUSHES 3
#endif
#define SEATS 6
#define NONE 7
#define C0 0
#define C1 1

/* roles of a seat */
#define FREE 0
#define WORK 1
#define STANDBY 2
#define SERVE 3

/* where a seat is */
#define LOOK 0   /* about to ask which consumers are due */
#define CLAIM 1  /* about to claim one of todo */
#define HAVE 2   /* has the locks of cur, and must see whether it is to be run */
#define NOTED 3  /* has written that cur runs, about to start its handler */
#define WAIT 4   /* has seen nothing more to do; waits for what runs */

/* a handler */
#define NO 0
#define RUN 1
#define LAST 2   /* has popped for the last time, and got nothing */
#define DEAD 3   /* was killed */
#define DONE 4   /* has exited */

bool unread[2];        /* a matching event is */
byte h[2];             /* the handler */
bool left[2];          /* processes of a killed handler */
byte lock[2];          /* run/<c>.lock: the seat that has it */
byte klock[2];         /* the lock of the record */
bool rec[2];           /* the record tells of a run */

byte role[SEATS]; byte pc[SEATS]; byte todo[SEATS]; byte cur[SEATS];
byte other[SEATS];     /* of a supervisor its standby, of a standby its supervisor */
bool stopped[SEATS];      /* a standby was told to stop */
bool fresh[SEATS];     /* nothing was released since the look began */
bool ping;             /* a datagram is in the server's socket */
byte server = NONE;
byte pushes = PUSHES; byte kills = KILLS; bool deleted; bool mended;
byte i, c, j;

#define has(s,k)  ((todo[s] >> (k)) & 1)
#define free(s)   (role[s] == FREE)
#define works(s)  (role[s] == WORK || role[s] == SERVE)
#define partner(s) (other[s] != NONE && !free(other[s]) && other[other[s]] == s)

inline seat(r, who) { /* a process starts */
	j = 0;
	do :: j < SEATS && !free(j) -> j++ :: else -> break od;
	assert(j < SEATS);
	role[j] = r; pc[j] = LOOK; todo[j] = 0; cur[j] = 0; other[j] = who; stopped[j] = false; fresh[j] = false;
}
inline end(s) { role[s] = FREE; pc[s] = 0; todo[s] = 0; cur[s] = 0; other[s] = 0; stopped[s] = false; fresh[s] = false; if :: server == s -> server = NONE; ping = false :: else fi }
inline release(s, k) { /* the kernel does, too, when s ends */
	if :: lock[k] == s -> lock[k] = NONE :: else fi;
	if :: klock[k] == s -> klock[k] = NONE :: else fi
}
inline gone(s) { release(s, 0); release(s, 1); end(s) }

/* push: the event is committed, and then somebody is woken: the server, if it
   listens, or else a supervisor. */
inline push(k) {
	unread[k] = true;
	if :: server != NONE -> ping = true
	   :: else -> seat(WORK, NONE); j = 0
	fi
}

/* Without ANY, only who has somebody to take over from it is killed. A process that
   a push has just started has nobody yet: until its standby is there it is the only
   one who knows, and its death is as good as that of the push. */
#ifdef ANY
#define mayKill(s) true
#else
#define mayKill(s) partner(s)
#endif

#define ended(s,k)  (klock[k] == s && (h[k] == DONE || h[k] == DEAD) && (cur[s] != k || (pc[s] != HAVE && pc[s] != NOTED)))
#define holds(s)    (klock[0] == s || klock[1] == s)
#define noStandby(s) (works(s) && other[s] != NONE && !partner(s))
#define orphaned(s) (role[s] == STANDBY && (stopped[s] || free(other[s]) || other[other[s]] != s))
#define canStep(s)  (orphaned(s) || works(s) && (pc[s] != WAIT || noStandby(s) || ended(s,0) || ended(s,1) || (!holds(s) && s != server)))

inline step() {
	if
	:: role[i] == STANDBY && stopped[i] -> /* its supervisor is done */
		end(i)
	:: role[i] == STANDBY && !stopped[i] -> /* takeover */
		role[i] = WORK; pc[i] = LOOK; other[i] = NONE; fresh[i] = false;
	:: noStandby(i) -> /* standby: another one, for one that was killed */
		seat(STANDBY, i); other[i] = j; j = 0
	:: works(i) && !noStandby(i) && ended(i, 0) -> conclude(0)
	:: works(i) && !noStandby(i) && ended(i, 1) -> conclude(1)
	:: works(i) && !noStandby(i) && !ended(i, 0) && !ended(i, 1) ->
		if
		:: pc[i] == LOOK -> /* look: what is due, or has lost its supervisor */
			fresh[i] = true;
			todo[i] = (unread[0] || rec[0]) + 2 * (unread[1] || rec[1]);
			pc[i] = CLAIM
		:: pc[i] == CLAIM && todo[i] == 0 ->
			cur[i] = 0; if :: fresh[i] -> pc[i] = WAIT; fresh[i] = false :: else -> pc[i] = LOOK fi
		:: pc[i] == CLAIM && has(i, 0) -> claim(0)
		:: pc[i] == CLAIM && has(i, 1) -> claim(1)
		:: pc[i] == HAVE -> c = cur[i];
			if
			:: !unread[c] && !rec[c] -> /* not-due: released, and looked at again */
				release(i, c); pc[i] = LOOK
			:: (unread[c] || rec[c]) && other[i] == NONE -> /* standby */
				seat(STANDBY, i); other[i] = j; j = 0
			:: rec[c] && other[i] != NONE -> /* lost */
				if
				:: h[c] == RUN || h[c] == LAST -> pc[i] = CLAIM /* adopt: its end is waited for */
				:: else -> evict(c); rec[c] = false; h[c] = NO; release(i, c); pc[i] = LOOK
				fi
			:: unread[c] && !rec[c] && other[i] != NONE -> /* note */
				rec[c] = true; pc[i] = NOTED
			fi; c = 0
		:: pc[i] == NOTED -> c = cur[i]; /* start */
			assert(h[c] == NO);   /* never two handlers of one consumer */
			assert(!left[c]);     /* nor one beside what is left of another */
			h[c] = RUN; pc[i] = CLAIM; c = 0
		:: pc[i] == WAIT && !holds(i) && i != server -> /* stop */
			if :: partner(i) -> stopped[other[i]] = true :: else fi;
			gone(i)
		fi
	fi
}

/* claim: the lock in run/ and that of the record, or neither. Who has them looks
   when it has released them. */
inline claim(k) {
	todo[i] = todo[i] & ~(1 << k);
	if
	:: lock[k] == NONE && klock[k] == NONE -> lock[k] = i; klock[k] = i; cur[i] = k; pc[i] = HAVE
	:: else
	fi
}

/* evict: what is left of a handler that was killed is ended */
inline evict(k) { left[k] = false }

/* conclude: the handler has ended; what is left of it is ended, then both locks are
   released, and then there is another look */
inline conclude(k) {
	if :: h[k] == DEAD -> evict(k) :: else fi;
	h[k] = NO; rec[k] = false;
	release(i, k);
	if :: pc[i] == WAIT -> pc[i] = LOOK :: else -> fresh[i] = false fi
}

init {
	lock[0] = NONE; lock[1] = NONE; klock[0] = NONE; klock[1] = NONE;
	if :: atomic { seat(SERVE, NONE); server = j; j = 0 }
	   :: skip
	fi;
	do
	/* push */
	:: atomic { pushes > 0 -> pushes--; if :: push(0) :: push(1) fi }
	/* a server is told of a push while it waits */
	:: atomic { server != NONE && ping && pc[server] == WAIT -> ping = false; pc[server] = LOOK }
	/* run/ is deleted, once: the locks in it exclude nobody any more */
	:: atomic { !deleted && (h[0] == RUN || h[1] == RUN) -> deleted = true; lock[0] = NONE; lock[1] = NONE }

	/* the handlers, which need nobody */
	:: atomic { h[0] == RUN -> if :: unread[0] -> unread[0] = false :: !unread[0] -> h[0] = LAST fi }
	:: atomic { h[1] == RUN -> if :: unread[1] -> unread[1] = false :: !unread[1] -> h[1] = LAST fi }
	:: atomic { h[0] == LAST -> h[0] = DONE }
	:: atomic { h[1] == LAST -> h[1] = DONE }

	/* kills, of handlers and of seats */
	:: atomic { kills > 0 && (h[0] == RUN || h[0] == LAST) -> kills--; h[0] = DEAD; left[0] = true }
	:: atomic { kills > 0 && (h[1] == RUN || h[1] == LAST) -> kills--; h[1] = DEAD; left[1] = true }
	:: atomic { kills > 0 && !free(0) && mayKill(0) -> kills--; gone(0) }
	:: atomic { kills > 0 && !free(1) && mayKill(1) -> kills--; gone(1) }
	:: atomic { kills > 0 && !free(2) && mayKill(2) -> kills--; gone(2) }
	:: atomic { kills > 0 && !free(3) && mayKill(3) -> kills--; gone(3) }
	:: atomic { kills > 0 && !free(4) && mayKill(4) -> kills--; gone(4) }
	:: atomic { kills > 0 && !free(5) && mayKill(5) -> kills--; gone(5) }

	/* one step of a seat */
	:: atomic { canStep(0) -> i = 0; step(); i = 0 }
	:: atomic { canStep(1) -> i = 1; step(); i = 0 }
	:: atomic { canStep(2) -> i = 2; step(); i = 0 }
	:: atomic { canStep(3) -> i = 3; step(); i = 0 }
	:: atomic { canStep(4) -> i = 4; step(); i = 0 }
	:: atomic { canStep(5) -> i = 5; step(); i = 0 }

	:: else ->
#ifdef ANY
		if :: !mended -> atomic { mended = true; kills = 0; seat(WORK, NONE); j = 0 } :: else -> break fi
#else
		break
#endif
	od;
	/* nobody does anything any more */
	assert(!unread[0] && !unread[1]);      /* nothing waits */
	assert(!left[0] && !left[1]);          /* no process is left of a killed handler */
	assert(h[0] == NO && h[1] == NO)       /* and none of another */
}
