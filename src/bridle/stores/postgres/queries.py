"""SQL of the PostgreSQL store. The search path holds its schema alone."""

LINE = """
    SELECT sid, parent, fork_seq, 9223372036854775807 FROM sessions WHERE uid = $1
    UNION ALL
    SELECT above.sid, above.parent, above.fork_seq, least(line.lo, line.hi)
    FROM line JOIN sessions AS above ON above.sid = line.parent
"""

# The first row describes the session; one statement sees one state of the database.
SELECT_RECORDS = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({LINE})
(SELECT 0::bigint, s.created, s.seal, s.head, NULL::bytea, s.seq, s.updated, p.uid, s.fork_seq
 FROM sessions AS s LEFT JOIN sessions AS p ON p.sid = s.parent WHERE s.uid = $1)
UNION ALL
(SELECT e.seq, e.at, e.once, e.hash, convert_to(e.data, 'UTF8'), NULL, NULL, NULL, NULL
 FROM line JOIN events AS e ON e.sid = line.sid AND e.seq > greatest(line.lo, $2 - 1)
    AND e.seq <= least(line.hi, $3)
 ORDER BY e.seq)
"""  # noqa: S608

SELECT_SNAPSHOT = """
SELECT n.seq, n.head, n.fold_version, n.data, n.digest, n.replaced FROM snapshots AS n JOIN sessions USING (sid)
WHERE uid = $1
"""

# Waits for a redaction of the session, which moves its head.
INSERT_SNAPSHOT = """
INSERT INTO snapshots (sid, seq, head, fold_version, data, digest, replaced)
SELECT sid, seq, head, $4, $5, $6, $7 FROM sessions WHERE uid = $1 AND seq = $2 AND head = $3 FOR SHARE
ON CONFLICT (sid) DO UPDATE SET seq = excluded.seq, head = excluded.head, fold_version = excluded.fold_version,
    data = excluded.data, digest = excluded.digest, replaced = excluded.replaced
"""

DELETE_SNAPSHOTS = "DELETE FROM snapshots WHERE sid IN (SELECT sid FROM sessions WHERE uid = ANY($1))"

SELECT_NAME = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({LINE})
SELECT 1 FROM line JOIN events AS e ON e.sid = line.sid AND e.once = $2 AND e.seq <= line.hi LIMIT 1
"""  # noqa: S608

# Redactions after a page, which may be of its records.
SELECT_REDACTIONS = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({LINE})
SELECT e.once, convert_to(e.data, 'UTF8') FROM line JOIN events AS e ON e.sid = line.sid
WHERE e.once >= 'redaction:' AND e.once < 'redaction;' AND e.seq > greatest(line.lo, $2) AND e.seq <= line.hi
"""  # noqa: S608

SELECT_REDACTED_LATER = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({LINE})
SELECT s.uid FROM line JOIN sessions AS s ON s.sid = line.sid
WHERE s.uid <> $1 AND line.lo < line.hi AND EXISTS (
    SELECT 1 FROM events AS e
    WHERE e.sid = line.sid AND e.once >= 'redaction:' AND e.once < 'redaction;' AND e.seq > line.hi
)
"""  # noqa: S608

SELECT_FORK_POINT = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({LINE})
SELECT e.hash, e.at FROM line JOIN events AS e ON e.sid = line.sid AND e.seq = $2
WHERE line.lo < $2 AND $2 <= line.hi
"""  # noqa: S608

SELECT_OWNER = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({LINE})
SELECT e.sid FROM line JOIN events AS e ON e.sid = line.sid AND e.seq = $2 WHERE line.lo < $2 AND $2 <= line.hi
"""  # noqa: S608

SELECT_SHARING = """
WITH RECURSIVE sharing (sid, uid) AS (
    SELECT sid, uid FROM sessions WHERE sid = $1
    UNION ALL
    SELECT fork.sid, fork.uid FROM sharing JOIN sessions AS fork ON fork.parent = sharing.sid AND fork.fork_seq >= $2
)
SELECT sid, uid FROM sharing
"""

LOCK_SESSIONS = "SELECT 1 FROM sessions WHERE sid = ANY($1::bigint[]) ORDER BY sid FOR UPDATE"

LOCK_BLOBS = "SELECT 1 FROM blobs WHERE hash = ANY($1) ORDER BY hash FOR UPDATE"

# Searching the text first: most records mention no blob, and are not decoded.
SELECT_MENTIONS = "SELECT convert_to(data, 'UTF8') FROM events WHERE strpos(data, $1) > 0"

UPDATE_DATA = "UPDATE events SET data = $3 WHERE sid = $1 AND seq = $2"

INSERT_REMOVAL = """
INSERT INTO removals (uid, seq, head, at, reason) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (uid) DO UPDATE SET seq = $2, head = $3, at = $4, reason = $5
"""

SELECT_REMOVAL = "SELECT 1 FROM removals WHERE uid = $1 AND head = $2"

SELECT_UNUSED_BLOBS = """
WITH unused AS (
    SELECT hash FROM blobs
    EXCEPT
    SELECT mention[1] COLLATE "C" FROM events, regexp_matches(data, '[0-9a-f]{64}', 'g') AS mention
)
SELECT hash, octet_length(bytes) FROM unused JOIN blobs USING (hash)
"""

# The role, and what it lacks, as it is written after GRANT.
SELECT_MISSING = """
SELECT array_prepend(quote_ident(current_user)::text, array_agg(
    format('%s ON %I.%I', privilege, current_schema(), name) ORDER BY name, privilege
) FILTER (WHERE NOT has_table_privilege(format('%I.%I', current_schema(), name), privilege)))
FROM unnest($1::text[], $2::text[]) AS needed (privilege, name)
"""

SELECT_DAMAGED_BLOBS = "SELECT hash FROM blobs WHERE encode(sha256(bytes), 'hex') <> hash"

SELECT_SURPLUS = """
SELECT uid, e.seq, s.seq FROM events AS e JOIN sessions AS s USING (sid) WHERE e.seq > s.seq OR e.seq <= s.fork_seq
"""

# The first lock is shared by all leases; pruning excludes them. Either both locks are taken or none.
TRY_LEASE = """
SELECT CASE WHEN pg_try_advisory_lock_shared($2) THEN
    CASE WHEN pg_try_advisory_lock($1) THEN true ELSE NOT pg_advisory_unlock_shared($2) END
ELSE false END
"""

RELEASE_LEASE = "SELECT pg_advisory_unlock($1), pg_advisory_unlock_shared($2)"

# A lock with one bigint key is listed as its two halves.
SELECT_LEASE = """
SELECT EXISTS (
    SELECT 1 FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = $1::bigint::oid AND objid = $2::bigint::oid
        AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
)
"""

SELECT_HASH = "SELECT hash FROM events JOIN sessions USING (sid) WHERE uid = $1 AND events.seq = $2"

SELECT_FORK = "SELECT 1 FROM sessions WHERE parent = $1 LIMIT 1"

SELECT_SESSIONS = """
SELECT s.uid, s.seq, s.created, s.updated, coalesce(p.uid, ''), s.fork_seq
FROM (SELECT * FROM sessions ORDER BY touched DESC LIMIT $1) AS s LEFT JOIN sessions AS p ON p.sid = s.parent
ORDER BY s.touched DESC
"""

INSERT_FORK = """
INSERT INTO sessions (uid, parent, fork_seq, seq, head, created, updated, seal)
VALUES ($1, $2, $3, $3, $4, $5, $5, $6)
ON CONFLICT (uid) DO NOTHING RETURNING sid
"""

SELECT_FOR_UPDATE = "SELECT sid, parent, seq, head, epoch FROM sessions WHERE uid = $1 FOR UPDATE"

INSERT_EVENT = "INSERT INTO events (sid, seq, at, once, hash, data) VALUES ($1, $2, $3, $4, $5, $6)"

REPLACE_HEAD = """
UPDATE sessions SET seq = $2, head = $3, created = $4, updated = $5, seal = $6, touched = nextval('touches')
WHERE sid = $1
"""

# Existing content is left alone unless it is damaged; then this restores it.
INSERT_BLOB = """
INSERT INTO blobs (hash, bytes) VALUES ($1, $2)
ON CONFLICT (hash) DO UPDATE SET bytes = excluded.bytes WHERE blobs.bytes <> excluded.bytes
"""

# An append moves the head of its session's row from the record before to its last one. The update waits for other
# writers of the row and then compares again, so a late, diverged or fenced writer moves nothing and inserts nothing.
# Inserted rows are not visible to the update and updated ones exist before, so a job is in `moved` or in `made`.
# Own unique keys are enforced by an index, inherited ones here. The blobs it refers to are locked against redactions.
APPEND = """
WITH RECURSIVE job AS (
    SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
        $8::float8[], $9::float8[], $10::text[])
        AS j (place, uid, after, seq, epoch, prev, head, first_at, last_at, seal)
), record AS (
    SELECT * FROM unnest($11::int[], $12::bigint[], $13::float8[], $14::text[], $15::text[], $16::text[])
        AS r (place, seq, at, once, hash, data)
), line (place, sid, parent, lo, hi) AS (
    SELECT job.place, above.sid, above.parent, above.fork_seq, s.fork_seq
    FROM job JOIN sessions AS s ON s.uid = job.uid JOIN sessions AS above ON above.sid = s.parent
    UNION ALL
    SELECT line.place, above.sid, above.parent, above.fork_seq, least(line.lo, line.hi)
    FROM line JOIN sessions AS above ON above.sid = line.parent
), present AS (
    SELECT hash FROM blobs WHERE hash = ANY($18::text[]) FOR KEY SHARE
), refused AS (
    SELECT need.place FROM unnest($17::int[], $18::text[]) AS need (place, hash)
    WHERE NOT EXISTS (SELECT 1 FROM present WHERE present.hash = need.hash)
    UNION ALL
    SELECT record.place FROM line JOIN record ON record.place = line.place
    JOIN events AS e ON e.sid = line.sid AND e.once = record.once AND e.seq <= line.hi
), moved AS (
    UPDATE sessions AS s SET
        seq = job.seq, head = job.head, updated = job.last_at, touched = nextval('touches'),
        created = CASE WHEN s.seq = s.fork_seq THEN job.first_at ELSE s.created END
    FROM job
    WHERE s.uid = job.uid AND s.seq = job.after AND s.head = job.prev
        -- guard: postgres-append-epoch
        AND s.epoch = coalesce(job.epoch, s.epoch)
        AND NOT EXISTS (SELECT 1 FROM refused WHERE refused.place = job.place)
    RETURNING s.sid, job.place
), made AS (
    INSERT INTO sessions (uid, seq, head, created, updated, seal)
    SELECT job.uid, job.seq, job.head, job.first_at, job.last_at, job.seal
    FROM job
    WHERE job.after = 0 AND job.prev = $19 AND coalesce(job.epoch, 0) = 0
        AND NOT EXISTS (SELECT 1 FROM refused WHERE refused.place = job.place)
        AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.uid = job.uid)
    ORDER BY job.uid
    ON CONFLICT (uid) DO NOTHING
    RETURNING sid, uid
), kept AS (
    SELECT sid, place FROM moved
    UNION ALL
    SELECT made.sid, job.place FROM made JOIN job ON job.uid = made.uid
), written AS (
    INSERT INTO events (sid, seq, at, once, hash, data)
    SELECT kept.sid, record.seq, record.at, record.once, record.hash, record.data
    FROM kept JOIN record ON record.place = kept.place
)
SELECT place FROM kept
"""

SELECT_OLDER_TRANSACTIONS = """
SELECT 'process ' || pid FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL)
AND greatest(age(backend_xid), age(backend_xmin)) >= age($1::text::xid8::xid)
UNION ALL
SELECT 'replication slot ' || slot_name FROM pg_replication_slots WHERE age(xmin) >= age($1::text::xid8::xid)
UNION ALL
SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts
WHERE database = current_database() AND age(transaction) >= age($1::text::xid8::xid)
"""
"""Transactions and slots that may still read deleted rows, so that VACUUM keeps them."""
