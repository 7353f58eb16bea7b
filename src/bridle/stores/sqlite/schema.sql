-- One file holds many sessions. A record is written once and never changed. Only the session's own row
-- changes: it holds the number and hash of the last record.
--
-- database_file.py runs these statements in one transaction, also on a file that lacks only the snapshots.

CREATE TABLE IF NOT EXISTS sessions (
    sid      INTEGER PRIMARY KEY,
    uid      TEXT    NOT NULL UNIQUE,
    parent   INTEGER REFERENCES sessions CHECK (parent < sid),
    fork_seq INTEGER NOT NULL DEFAULT 0,   -- records up to here belong to the parent
    seq      INTEGER NOT NULL,             -- number of the last record
    head     TEXT    NOT NULL,             -- its hash, which reveals a missing end
    created  REAL    NOT NULL,
    updated  REAL    NOT NULL,
    touched  INTEGER NOT NULL,             -- last gseq when this row was written: order without a clock
    epoch    INTEGER NOT NULL DEFAULT 0    -- number of takeovers; a writer with a lower one is refused
) STRICT;

-- `data` is last, so that the other columns can be listed without reading long events.
CREATE TABLE IF NOT EXISTS events (
    gseq INTEGER PRIMARY KEY,
    sid  INTEGER NOT NULL REFERENCES sessions,
    seq  INTEGER NOT NULL,
    at   REAL    NOT NULL,
    once TEXT,
    hash BLOB    NOT NULL,             -- 32 bytes: in hexadecimal it would take twice the space
    blob TEXT    REFERENCES blobs,
    data TEXT,
    UNIQUE (sid, seq),
    CHECK ((blob IS NULL) <> (data IS NULL))
) STRICT;

CREATE UNIQUE INDEX IF NOT EXISTS events_once ON events (sid, once) WHERE once IS NOT NULL;

-- Long events and content that records refer to, by SHA-256; equal content is stored once.
CREATE TABLE IF NOT EXISTS blobs (
    hash  TEXT PRIMARY KEY NOT NULL,
    bytes BLOB NOT NULL
) STRICT;

-- A log as it was folded once: derived from the records up to `seq`, and removed with any of them.
CREATE TABLE IF NOT EXISTS snapshots (
    sid          INTEGER PRIMARY KEY REFERENCES sessions,
    seq          INTEGER NOT NULL,
    head         TEXT    NOT NULL,
    fold_version TEXT    NOT NULL,
    digest       TEXT    NOT NULL,
    replaced     TEXT    NOT NULL,
    data         BLOB    NOT NULL
) STRICT;

-- Sessions that `bridle store gc` removed: their last record, and why they were removed.
CREATE TABLE IF NOT EXISTS removals (
    uid    TEXT    PRIMARY KEY NOT NULL,
    sid    INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    head   TEXT    NOT NULL,
    at     REAL    NOT NULL,
    reason TEXT    NOT NULL
) STRICT;

-- The identity a session was created with; reveals renamed, exchanged or deleted sessions (origins.py).
CREATE TABLE IF NOT EXISTS origins (
    uid  TEXT    PRIMARY KEY NOT NULL,
    sid  INTEGER NOT NULL UNIQUE,
    seal TEXT    NOT NULL
) STRICT;
