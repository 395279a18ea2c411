-- Names that differ in case stay different jobs, whatever collation the caller compares them with.
-- Builds of Postgres without ICU have no such collation.

select exists (select from pg_collation where collprovider = 'i') as has_icu \gset
\if :has_icu
create collation everything (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
\else
create collation everything from "C";
\endif
select 'KIND' = 'kind' collate everything or not :'has_icu' as control; --> t
select id, unique_skipped_as_duplicate from jobs.insert('kind' collate everything, unique_opts => '{"by_kind": true}', queue => 'case'); --> id|unique_skipped_as_duplicate: 1|f
select unique_skipped_as_duplicate from jobs.insert('KIND' collate everything, unique_opts => '{"by_kind": true}', queue => 'case'); --> f
select count(*) from jobs.fetch('CASE' collate everything); --> 0
