-- What jobs is measured against: written from the descriptions, as good as plain SQL can be, and
-- not changed while jobs is tuned. Both live in the same server with the same durability and the
-- server's own fillfactor and autovacuum settings.

-- R1: a bare INSERT .. ON CONFLICT DO NOTHING into one table with a job's columns, a primary key,
-- the index that fetching needs, and a unique index on a sha256.
create table r1 (
  id bigint generated always as identity primary key,
  kind text not null,
  args jsonb not null,
  meta jsonb not null default '{}',
  queue text not null default 'default',
  priority smallint not null default 1,
  tags text[] not null default '{}',
  max_attempts int not null default 25,
  created_at timestamptz not null default clock_timestamp(),
  scheduled_at timestamptz not null default clock_timestamp(),
  timeout interval,
  retry jsonb,
  expires_at timestamptz,
  state jobs.state not null default 'available',
  unique_key bytea not null
);
create index r1_fetch on r1 (queue, priority, id) where state = 'available';
create unique index r1_unique on r1 (unique_key);

-- R2: the one-table queue: a state column, partial indexes for what is asked for, SKIP LOCKED, an
-- update to running and one to completed.
create table r2 (
  id bigint generated always as identity primary key,
  kind text not null,
  args jsonb not null,
  meta jsonb not null default '{}',
  queue text not null default 'default',
  priority smallint not null default 1,
  tags text[] not null default '{}',
  attempt int not null default 0,
  max_attempts int not null default 25,
  created_at timestamptz not null default clock_timestamp(),
  scheduled_at timestamptz not null default clock_timestamp(),
  attempted_at timestamptz,
  lease_expires_at timestamptz,
  finalized_at timestamptz,
  worker text,
  timeout interval,
  retry jsonb,
  expires_at timestamptz,
  state jobs.state not null default 'available',
  unique_key bytea
);
create index r2_fetch on r2 (queue, priority, id) where state = 'available';
create index r2_due on r2 (scheduled_at) where state in ('scheduled', 'retryable');
create index r2_running on r2 (lease_expires_at) where state = 'running';
create index r2_finished on r2 (finalized_at) where state in ('completed', 'cancelled', 'discarded');
create unique index r2_unique on r2 (unique_key) where unique_key is not null;

create function r2_fetch(in_queue text, most int) returns table (id bigint, kind text, args jsonb, meta jsonb, attempt int, tags text[])
language sql volatile as $$
  update r2 set state = 'running', attempt = r2.attempt + 1, attempted_at = now(), lease_expires_at = now() + interval '1 minute', worker = 'bench'
   where r2.id = any (array(
     select a.id from r2 a where a.queue = in_queue and a.state = 'available' order by a.priority, a.id limit most for update skip locked))
  returning r2.id, r2.kind, r2.args, r2.meta, r2.attempt, r2.tags $$;

create function r2_complete(ids bigint[]) returns bigint
language sql volatile as $$
  with done as (update r2 set state = 'completed', finalized_at = now(), lease_expires_at = null where r2.id = any (ids) and state = 'running' returning 1)
  select count(*) from done $$;
