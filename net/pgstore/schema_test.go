package pgstore_test

// One schema for all threads of a database.
//
// Texts are bytea, because PostgreSQL's text has no NUL, and bytea is ordered by bytes
// wherever the database was made.
//
// Nothing is counted: ids are dense, so that the newest id is how many events there ever
// were. A counter in the thread's row would leave a dead row with every push.
const schema = `
CREATE TABLE threads (
	thread text PRIMARY KEY,
	floor  bigint NOT NULL DEFAULT 0 -- events up to here were dropped
);
CREATE TABLE events (
	thread     text NOT NULL,
	id         bigint NOT NULL,
	created_at text NOT NULL,
	series     bigint NOT NULL,
	content    bytea NOT NULL,
	PRIMARY KEY (thread, id)
);
CREATE INDEX events_by_series ON events (thread, series, id);
CREATE TABLE series (
	thread  text NOT NULL,
	id      bigint NOT NULL,
	digest  bytea NOT NULL, -- of the three, which are too long for an index
	source  bytea NOT NULL,
	type    bytea NOT NULL,
	subtype bytea,
	PRIMARY KEY (thread, id),
	UNIQUE (thread, digest)
);
CREATE TABLE records (
	thread text NOT NULL,
	tab    text NOT NULL,
	key    bytea NOT NULL,
	value  bytea NOT NULL,
	PRIMARY KEY (thread, tab, key)
);
CREATE TABLE sequences (
	thread text NOT NULL,
	tab    text NOT NULL,
	n      numeric(20) NOT NULL, -- of 64 bits, without a sign
	PRIMARY KEY (thread, tab)
);
`
