-- Replies that are being received: one row per session that is watched (notifications.py). Not logged, and no part of
-- the format: without this table replies are shown when they are complete.

CREATE UNLOGGED TABLE IF NOT EXISTS live (
    uid     text PRIMARY KEY,
    data    bytea NOT NULL DEFAULT '',
    read_at timestamptz NOT NULL DEFAULT now()
);

-- Roles that may read records may read it; those that may write records may write it.
DO $$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT DISTINCT privilege_type AS privilege, coalesce(quote_ident(rolname), 'PUBLIC') AS role
        FROM pg_class AS c, aclexplode(coalesce(relacl, acldefault('r', relowner))) AS acl
            LEFT JOIN pg_roles AS r ON r.oid = grantee
        WHERE (grantee = 0 OR r.oid IS NOT NULL)
            AND c.oid = 'events'::regclass AND privilege_type IN ('SELECT', 'INSERT')
    LOOP
        EXECUTE format(
            'GRANT %s ON live TO %s',
            CASE given.privilege WHEN 'INSERT' THEN 'INSERT, UPDATE, DELETE' ELSE 'SELECT' END,
            given.role
        );
    END LOOP;
END
$$;
