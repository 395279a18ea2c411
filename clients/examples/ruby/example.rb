# What a program with ActiveRecord does with the queue: insert, unique insert, jobs in the
# transactions of its models, a worker.
#
#   DATABASE_URL=postgresql://app@localhost/shop ruby example.rb
#
# It needs the gems activerecord (6.1 or newer) and pg; Debian has them as ruby-activerecord and
# ruby-pg. The role needs jobs.grant_producer and jobs.grant_worker. Behind PgBouncer in transaction
# mode add ?prepared_statements=false to the URL.
#
# Values go as text of no declared type, and Postgres takes them as what the parameter is. So JSON
# is to_json, an array what PG::TextEncoder makes of it, a duration its ISO 8601 form.

require "active_record"
require "json"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
Db = ActiveRecord::Base.connection

class Order < ActiveRecord::Base
end

def rows(sql, *values)
  Db.exec_query(sql, "SQL", values, prepare: Db.prepared_statements).to_a.map(&:symbolize_keys)
end

# jobs.insert with the names of its parameters, in the transaction that the connection is in. nil is
# SQL NULL, the default.
def insert_job(**options)
  parameters = options.keys.each.with_index(1).map { |name, n| "#{name} => $#{n}" }
  rows("select * from jobs.insert(#{parameters.join(', ')})", *options.values).first
end

def text_array(values) = PG::TextEncoder::Array.new.encode(values)

# --- Insert, unique insert ------------------------------------------------------------------------

Db.create_table(:orders) { |t| t.text :customer; t.boolean :shipped, default: false }
job = insert_job(kind: "ship", args: { order: 0 }.to_json, queue: "shipping")
puts "inserted: #{job[:state]} in #{job[:queue]}"

report = { month: "2030-01" }.to_json
first = insert_job(kind: "report", args: report, unique_opts: { by_args: true }.to_json)
again = insert_job(kind: "report", args: report, unique_opts: { by_args: true }.to_json)
puts "duplicate: #{again[:unique_skipped_as_duplicate]}, same job: #{again[:id] == first[:id]}"
begin
  insert_job(kind: "report", args: report, unique_opts: { by_args: true, on_conflict: "reject" }.to_json)
rescue ActiveRecord::RecordNotUnique => error # its cause is the error of pg
  result = error.cause.result
  detail = JSON.parse(result.error_field(PG::Result::PG_DIAG_MESSAGE_DETAIL))
  puts "rejected: #{result.error_field(PG::Result::PG_DIAG_SQLSTATE)}, names the job: #{detail['existing_job_id'] == first[:id]}"
end

# --- A row of ours and its job: both or neither. In a model: after_create, not after_commit, which
# could lose the job.

def place_order(customer, fails: false)
  ActiveRecord::Base.transaction do
    order = Order.create!(customer: customer)
    insert_job(kind: "ship", args: { order: order.id }.to_json, queue: "shipping")
    raise ArgumentError, "the card was refused" if fails
  end
end

begin
  place_order("Ann", fails: true)
rescue ArgumentError
  puts "rolled back: #{Order.count} orders"
end
place_order("Bob")
puts "committed: #{Order.count} orders"

# --- Every type, and many jobs. nil is SQL NULL; nil.to_json is JSON null, which is a value. ------

job = insert_job(
  kind: "types",
  args: { text: "ü ' \\ \"", numbers: [1, 2.5, 9007199254740993], none: nil }.to_json,
  unique_opts: nil,
  queue: nil,
  priority: -5,
  scheduled_at: Time.new(2030, 1, 2, 3, 4, 5, "+02:00").iso8601,
  max_attempts: 3,
  tags: text_array(["a b", "c,d", 'say "hi"', ""]),
  meta: { note: nil }.to_json,
  timeout: 90.seconds.iso8601,
  retry: "oban".to_json,
  expires_at: Time.utc(2031, 1, 1).iso8601,
  pending: false
)
puts "types: #{job[:state]} at #{job[:scheduled_at].to_time.utc.strftime('%F %T')}"
insert_job(kind: "null_args", args: nil.to_json)
begin
  insert_job(kind: "null_args", args: nil)
rescue ActiveRecord::StatementInvalid => error
  puts "null args: #{error.cause.result.error_field(PG::Result::PG_DIAG_SQLSTATE)}"
end
20.times { |n| insert_job(kind: "counted", args: { n: n }.to_json) }
generic = rows("select coalesce(sum(generic_plans), 0) > 0 as used from pg_prepared_statements where statement like '%jobs.insert(%'")
puts "repeated: 20 jobs, generic plan: #{generic.first[:used]}"

line = { kind: "line", args: { n: 1 }, unique_opts: { by_args: true } }
many = rows("select * from jobs.insert_many($1)", [line, line, line.merge(args: nil)].to_json)
puts "insert_many: #{many.size} rows, #{many.count { |row| row[:unique_skipped_as_duplicate] }} skipped"
batch = rows("select * from jobs.insert_batch('page', $1)", text_array([{ n: 1 }.to_json, { n: 2 }.to_json]))
puts "insert_batch: #{batch.size} rows"

# --- A worker in its simplest form, until there is nothing left to do. It fetches and waits outside
# of transactions.

def ship(job, order)
  ActiveRecord::Base.transaction do # what the job changes and its end: both or neither
    raise ActiveRecord::RecordNotFound, "there is no order #{order}" if Order.where(id: order).update_all(shipped: true).zero?
    rows("select jobs.complete($1, $2, $3) as state", job[:id], job[:token], { ok: true }.to_json).first[:state]
  end
end

loop do
  jobs = rows("select * from jobs.fetch('shipping', max_jobs => 10, worker => 'example', lease => $1)", 1.minute.iso8601)
  jobs.each do |job|
    order = JSON.parse(job[:args])["order"]
    begin
      state = ship(job, order)
    rescue ActiveRecord::RecordNotFound => error
      state = rows("select state from jobs.fail($1, $2, $3, retry_in => $4, details => $5)",
                   job[:id], job[:token], error.message, 1.hour.iso8601, { type: "unknown_order" }.to_json).first[:state]
    end
    puts "worker: order #{order} #{state}"
  end
  next unless jobs.empty?
  # A real worker waits longer, and repeats.
  Db.execute("call jobs.wait('shipping', timeout => '100 ms')")
  break
end
begin
  rows("select jobs.complete($1, 12345)", first[:id])
rescue ActiveRecord::StatementInvalid => error
  puts "not ours: #{error.cause.result.error_field(PG::Result::PG_DIAG_SQLSTATE)}"
end
