-- A log as it was folded once: derived from the records up to `seq`, and removed with any of them. A version that does
-- not know this table would redact content and leave it there.

CREATE TABLE snapshots (
    sid          bigint PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    seq          bigint NOT NULL,
    head         text NOT NULL,
    fold_version text NOT NULL,
    digest       text NOT NULL,
    replaced     text NOT NULL,
    data         bytea NOT NULL
);

-- Roles that may use the records may use their snapshots; those that may redact content may remove it from here.
DO $$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT DISTINCT privilege_type AS privilege, coalesce(quote_ident(rolname), 'PUBLIC') AS role
        FROM pg_class AS c, aclexplode(coalesce(relacl, acldefault('r', relowner))) AS acl
            LEFT JOIN pg_roles AS r ON r.oid = grantee
        WHERE (grantee = 0 OR r.oid IS NOT NULL)
            AND (c.oid = 'events'::regclass AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE')
                OR c.oid IN ('events'::regclass, 'blobs'::regclass) AND privilege_type = 'DELETE')
    LOOP
        EXECUTE format('GRANT %s ON snapshots TO %s', given.privilege, given.role);
    END LOOP;
END
$$;
