//! The objects that the extension consists of: whose each is, and what others may do with it.

use super::spi::{plans, run_text};
use crate::pg::extension::by_hand;
use crate::pg::transaction;

// A row for each object that is a member of the extension, and for each column with rights of its
// own: what GRANT calls it, its owner, its rights, and the transaction that made it a member.
// (Arrays go with the type of their elements, and types of rows with their tables.)
pub(super) const MEMBERS: &str =
    "WITH member AS (
       SELECT m.kind, m.name, m.owner, m.acl, e.extowner, d.classid, d.objid, d.xmin AS made_by
         FROM pg_catalog.pg_extension e
         JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid AND d.deptype = 'e',
              LATERAL (
           SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind, c.oid::pg_catalog.regclass::text AS name, c.relowner AS owner,
                  COALESCE(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's'::\"char\" ELSE 'r' END, c.relowner)) AS acl
             FROM pg_catalog.pg_class c WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.oid = d.objid
           UNION ALL
           SELECT 'TABLE', c.oid::pg_catalog.regclass::text, c.relowner, a.attacl
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
            WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.oid = d.objid AND a.attacl IS NOT NULL
           UNION ALL
           SELECT 'ROUTINE', p.oid::pg_catalog.regprocedure::text, p.proowner, COALESCE(p.proacl, acldefault('f', p.proowner))
             FROM pg_catalog.pg_proc p WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND p.oid = d.objid
           UNION ALL
           SELECT 'TYPE', t.oid::pg_catalog.regtype::text, t.typowner, COALESCE(t.typacl, acldefault('T', t.typowner))
             FROM pg_catalog.pg_type t WHERE d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND t.oid = d.objid AND t.typcategory <> 'A'
              AND NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid AND c.relkind <> 'c')
           UNION ALL
           SELECT 'SCHEMA', n.oid::pg_catalog.regnamespace::text, n.nspowner, COALESCE(n.nspacl, acldefault('n', n.nspowner))
             FROM pg_catalog.pg_namespace n WHERE d.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass AND n.oid = d.objid) m
        WHERE e.extname = 'jobs') ";

// What was granted to others, a row for each object and role. What these have passed on hangs on
// it. Only the owner may have what is in `never`: a role that writes to the tables, hangs a trigger
// on one or makes something in the schema has the rights of the extension's owner with the next
// call. (That PUBLIC uses types is no more than untidy.)
pub(super) fn granted() -> String {
    format!(
        "{MEMBERS}, granted AS (
           SELECT m.kind, m.name, m.made_by::text AS made_by, g.rolname AS role, COALESCE(pg_catalog.quote_ident(g.rolname), 'PUBLIC') AS grantee,
                  string_agg(DISTINCT a.privilege_type, ', ') AS rights,
                  string_agg(DISTINCT a.privilege_type, ', ') FILTER (
                    WHERE a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER', 'CREATE')
                       OR m.kind = 'SEQUENCE' AND a.privilege_type = 'USAGE' OR m.kind = 'TYPE' AND a.grantee = 0) AS never
             FROM member m, LATERAL pg_catalog.aclexplode(m.acl) a LEFT JOIN pg_catalog.pg_roles g ON g.oid = a.grantee
            WHERE a.grantor = m.owner AND a.grantee <> m.owner
            GROUP BY m.kind, m.name, m.made_by::text, g.rolname) "
    )
}

/// Takes from all roles but the owner what they have come by, as by default privileges: everything
/// of what this transaction has made, and of what there was before what only the owner is to
/// have. What was granted otherwise stays.
pub fn keep_to_the_owner() {
    let granted = GRANTED.list(&[], |rows, row| {
        let text = |column| rows.get::<String>(row, column);
        let made_by: u32 = text("made_by")?.parse().ok()?;
        let is_new = transaction::is_ours(made_by);
        let rights = text(if is_new { "rights" } else { "never" });
        let is_granted = !is_new && rows.get(row, "is_granted")?;
        Some((text("from_whom")?, rights?, is_granted))
    });
    for (from, rights, is_granted) in granted {
        let revoke = || run_text(&format!("REVOKE {rights} ON {from} CASCADE"));
        // What a script leaves of the rights to an object is noted as what the extension comes
        // with. Where others keep what they were granted, that would leave it out of dumps.
        if is_granted { by_hand(revoke) } else { revoke() }
    }
}

plans! {
    GRANTED() =
        "{granted}SELECT format('%s %s FROM %s', g.kind, g.name, g.grantee) AS from_whom, g.rights, g.never, g.made_by,
                bool_or(g.never IS DISTINCT FROM g.rights) OVER (PARTITION BY g.kind, g.name) AS is_granted
           FROM granted g ORDER BY 1",
        granted = granted();
}
