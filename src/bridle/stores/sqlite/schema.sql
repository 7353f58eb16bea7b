-- One file holds many sessions. A record is written once and never changed. Only the session's own row
-- changes: it holds the number and hash of the last record.
--
-- database_file.py runs these statements in one transaction, also on older files, which may lack tables.

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
    hash TEXT    NOT NULL,
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

-- The identity a session was created with; reveals renamed, exchanged or deleted sessions (origins.py).
CREATE TABLE IF NOT EXISTS origins (
    uid  TEXT    PRIMARY KEY NOT NULL,
    sid  INTEGER NOT NULL UNIQUE,
    seal TEXT    NOT NULL
) STRICT;
