\set ECHO none
-- Names that differ in case stay different jobs, whatever collation the caller compares them with.
-- Builds of Postgres without ICU have no such collation.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select exists (select from pg_collation where collprovider = 'i') as has_icu \gset
\if :has_icu
create collation everything (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
select 'KIND' = 'kind' collate everything as control;
select id, unique_skipped_as_duplicate from jobs.insert('kind' collate everything, unique_opts => '{"by_kind": true}', queue => 'case');
select unique_skipped_as_duplicate from jobs.insert('KIND' collate everything, unique_opts => '{"by_kind": true}', queue => 'case');
select count(*) from jobs.fetch('CASE' collate everything);
\endif
