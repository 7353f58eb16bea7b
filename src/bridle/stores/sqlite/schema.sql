-- One file holds many sessions.  A record is written once and never changed; the
-- only row that changes is a session's own, which says where its line ends now.
--
-- Written to be run by two processes at the same time on the same empty file.

BEGIN IMMEDIATE;

CREATE TABLE IF NOT EXISTS sessions (
    sid      INTEGER PRIMARY KEY,
    uid      TEXT    NOT NULL UNIQUE,
    parent   INTEGER REFERENCES sessions CHECK (parent < sid),
    fork_seq INTEGER NOT NULL DEFAULT 0,   -- records up to here are the parent's
    seq      INTEGER NOT NULL,             -- number of the last record of the line
    head     TEXT    NOT NULL,             -- its hash: a cut tail shows
    created  REAL    NOT NULL,
    updated  REAL    NOT NULL,
    touched  INTEGER NOT NULL              -- last gseq when this row was written: order without a clock
) STRICT;

-- `data` last: everything before it can be listed without reading past a big one.
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

-- What would make the rows above long, and what records refer to, by the SHA-256 of its bytes; equal
-- content is kept once.
CREATE TABLE IF NOT EXISTS blobs (
    hash  TEXT PRIMARY KEY NOT NULL,
    bytes BLOB NOT NULL
) STRICT;

-- What a session was made as: proof against one that was renamed, exchanged or deleted (sqlite_origins.py).
CREATE TABLE IF NOT EXISTS origins (
    uid  TEXT    PRIMARY KEY NOT NULL,
    sid  INTEGER NOT NULL UNIQUE,
    seal TEXT    NOT NULL
) STRICT;

PRAGMA application_id = 1112687692;
PRAGMA user_version = 1;

COMMIT;
