-- Threads in PostgreSQL, version 1: one schema for all threads of a database.
--
-- "thread init URL" does what is in this file when the schema is missing. To do it
-- yourself, as a role that may create schemas:
--
--     thread-net schema | psql --single-transaction --set ON_ERROR_STOP=1 DATABASE
--
-- and let the roles that use threads use the schema and read and write its tables, as
-- "thread-net schema --role app" prints it:
--
--     GRANT USAGE ON SCHEMA thread TO app;
--     GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA thread TO app;
--
-- A role that may use the schema may read and write all threads in it. For tenants who may
-- not see each other's threads, make a schema and a role for each: thread-net schema
-- --schema tenant1 --role tenant1.
--
-- Texts of users are bytea: PostgreSQL's text has no NUL, and bytea is ordered by its
-- bytes wherever the database was made. What is in the records is not for SQL: every
-- record has a checksum.

CREATE SCHEMA thread;
SET LOCAL search_path = thread;

CREATE TABLE format (
	version integer NOT NULL -- 2 once a thread was imported whose ids have gaps, in the same tables
);
INSERT INTO format VALUES (1);

-- Every write locks its thread's row. Nothing in it changes with a push, because each
-- change would leave a dead row behind.
CREATE TABLE threads (
	thread     text PRIMARY KEY,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	floor      bigint NOT NULL DEFAULT 0 -- events up to here were dropped; -1 - floor while the thread is imported
);

-- Ids are 1, 2, 3 ... in the order of commits, without gaps but those that came with an import.
CREATE TABLE events (
	thread     text NOT NULL REFERENCES threads ON DELETE CASCADE,
	id         bigint NOT NULL,
	created_at text NOT NULL,
	series     bigint NOT NULL,
	content    bytea NOT NULL,
	PRIMARY KEY (thread, id)
);
CREATE INDEX events_by_series ON events (thread, series, id);

-- The distinct triples of source, type and subtype.
CREATE TABLE series (
	thread  text NOT NULL REFERENCES threads ON DELETE CASCADE,
	id      bigint NOT NULL,
	digest  bytea NOT NULL, -- SHA-256 of the three, which are too long for an index
	source  bytea NOT NULL,
	type    bytea NOT NULL,
	subtype bytea,
	PRIMARY KEY (thread, id),
	UNIQUE (thread, digest)
);

-- Subscriptions, progress, deliveries, dead letters, dedupe keys, schedules.
CREATE TABLE records (
	thread text NOT NULL REFERENCES threads ON DELETE CASCADE,
	tab    text NOT NULL,
	key    bytea NOT NULL,
	value  bytea NOT NULL,
	PRIMARY KEY (thread, tab, key)
);

CREATE TABLE sequences (
	thread text NOT NULL REFERENCES threads ON DELETE CASCADE,
	tab    text NOT NULL,
	n      numeric(20) NOT NULL, -- 64 bits without a sign
	PRIMARY KEY (thread, tab)
);

-- Who works for a consumer: the fence grows with every holder, and only the holder of
-- the newest one can store results.
CREATE TABLE turns (
	thread   text NOT NULL REFERENCES threads ON DELETE CASCADE,
	consumer bytea NOT NULL,
	fence    bigint NOT NULL,
	holder   text NOT NULL,        -- host and process, for people
	until    timestamptz NOT NULL, -- another process may take the turn then
	PRIMARY KEY (thread, consumer)
);

-- A random number of each recent write, by which one that lost its connection at COMMIT
-- learns what became of it.
CREATE TABLE commits (
	thread text NOT NULL REFERENCES threads ON DELETE CASCADE,
	nonce  bytea NOT NULL,
	at     timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (thread, nonce)
);
