-- One schema holds many sessions. A record is written once; only its redaction changes it. The session's own row
-- changes with every append: it holds the number and hash of the last record, and the epoch of its writers.
--
-- Runs in one transaction, under an advisory lock, with the schema as the only one on the search path.

CREATE TABLE format (
    version integer NOT NULL   -- of these tables; a Bridle that knows only older ones refuses them
);

CREATE SEQUENCE touches;       -- order of the writes, without a clock

CREATE TABLE sessions (
    sid      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent   bigint REFERENCES sessions,
    fork_seq bigint NOT NULL DEFAULT 0,   -- records up to here belong to the parent
    seq      bigint NOT NULL,             -- number of the last record
    epoch    bigint NOT NULL DEFAULT 0,   -- number of takeovers
    touched  bigint NOT NULL DEFAULT nextval('touches'),
    created  double precision NOT NULL,
    updated  double precision NOT NULL,
    head     text NOT NULL,               -- hash of the last record, which reveals a missing end
    seal     text NOT NULL,               -- identity it was created with, which reveals renaming (rows.py)
    uid      text COLLATE "C" NOT NULL UNIQUE
) WITH (fillfactor = 50);                 -- every append updates one row in place

CREATE TABLE events (
    sid  bigint NOT NULL REFERENCES sessions,
    seq  bigint NOT NULL,
    at   double precision NOT NULL,
    once text COLLATE "C",
    hash text NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (sid, seq)
);

CREATE UNIQUE INDEX events_once ON events (sid, once) WHERE once IS NOT NULL;

-- Content that records refer to, by SHA-256; equal content is stored once.
CREATE TABLE blobs (
    hash  text COLLATE "C" PRIMARY KEY,
    bytes bytea NOT NULL
);

-- Sessions that `bridle store gc` removed: their last record, and why they were removed.
CREATE TABLE removals (
    uid    text COLLATE "C" PRIMARY KEY,
    seq    bigint NOT NULL,
    head   text NOT NULL,
    at     double precision NOT NULL,
    reason text NOT NULL
);

-- A log as it was folded once: derived from the records up to `seq`, and removed with any of them.
CREATE TABLE snapshots (
    sid          bigint PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    seq          bigint NOT NULL,
    head         text NOT NULL,
    fold_version text NOT NULL,
    digest       text NOT NULL,
    replaced     text NOT NULL,
    data         bytea NOT NULL
);
