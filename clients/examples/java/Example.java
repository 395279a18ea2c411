// What a program with JDBC does with the queue: insert, unique insert, jobs in its own
// transactions, batches, a worker.
//
//   JDBC_URL='jdbc:postgresql://localhost/shop?user=app' java -cp postgresql.jar Example.java
//
// The role needs jobs.grant_producer and jobs.grant_worker. Behind PgBouncer in transaction mode
// add &prepareThreshold=0.
//
// The driver says the type of every value, and Postgres looks for a function with these types. A
// String is text: JSON needs a cast, ?::jsonb. An int is right for an integer; a long would be a
// bigint, and no function would be found.

import java.sql.*;
import java.time.*;
import java.util.*;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PSQLException;

public class Example {
  static Connection db;

  static final Set<String> JSON = Set.of("args", "unique_opts", "meta", "retry");

  /** jobs.insert with the names of its parameters: name, value, name, value. null is SQL NULL, which means the default. */
  static Map<String, Object> insertJob(Object... options) throws SQLException {
    List<String> names = new ArrayList<>();
    List<Object> values = new ArrayList<>();
    for (int i = 0; i < options.length; i += 2) {
      names.add(options[i] + " => ?" + (JSON.contains(options[i]) ? "::jsonb" : ""));
      values.add(options[i + 1]);
    }
    return rows("SELECT * FROM jobs.insert(" + String.join(", ", names) + ")", values.toArray()).get(0);
  }

  /** The driver remembers statements by their text, and prepares on the server what has been executed five times. */
  static List<Map<String, Object>> rows(String sql, Object... values) throws SQLException {
    List<Map<String, Object>> rows = new ArrayList<>();
    try (PreparedStatement statement = db.prepareStatement(sql)) {
      for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
      if (!statement.execute()) return rows;
      ResultSet result = statement.getResultSet();
      while (result.next()) {
        Map<String, Object> row = new HashMap<>();
        for (int i = 1; i <= result.getMetaData().getColumnCount(); i++) row.put(result.getMetaData().getColumnLabel(i), result.getObject(i));
        rows.add(row);
      }
    }
    return rows;
  }

  static Object value(String sql, Object... values) throws SQLException {
    return rows(sql, values).get(0).get("value");
  }

  interface Work<T> {
    T run() throws Exception;
  }

  static <T> T transaction(Work<T> work) throws Exception {
    db.setAutoCommit(false);
    try {
      T result = work.run();
      db.commit();
      return result;
    } catch (Exception error) {
      db.rollback();
      throw error;
    } finally {
      db.setAutoCommit(true);
    }
  }

  /** A row of ours and its job: both or neither. */
  static void placeOrder(String customer, boolean fails) throws Exception {
    transaction(() -> {
      Object order = value("INSERT INTO orders (customer) VALUES (?) RETURNING id AS value", customer);
      insertJob("kind", "ship", "args", "{\"order\": " + order + "}", "queue", "shipping");
      if (fails) throw new IllegalStateException("the card was refused");
      return order;
    });
  }

  /** What the job changes and its end: both or neither. */
  static Object ship(Map<String, Object> job) throws Exception {
    return transaction(() -> {
      if (rows("UPDATE orders SET shipped = true WHERE id = ? RETURNING id", job.get("order")).isEmpty())
        throw new NoSuchElementException("there is no order " + job.get("order"));
      return value("SELECT jobs.complete(?, ?, ?::jsonb) AS value", job.get("id"), job.get("token"), "{\"ok\": true}");
    });
  }

  public static void main(String[] arguments) throws Exception {
    db = DriverManager.getConnection(System.getenv("JDBC_URL"));
    rows("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text, shipped boolean DEFAULT false)");

    var job = insertJob("kind", "ship", "args", "{\"order\": 0}", "queue", "shipping");
    System.out.println("inserted: " + job.get("state") + " in " + job.get("queue"));

    // Unique: a duplicate is skipped and answers with the job that exists, or is an error.
    String report = "{\"month\": \"2030-01\"}";
    var first = insertJob("kind", "report", "args", report, "unique_opts", "{\"by_args\": true}");
    var again = insertJob("kind", "report", "args", report, "unique_opts", "{\"by_args\": true}");
    System.out.println("duplicate: " + again.get("unique_skipped_as_duplicate") + ", same job: " + Objects.equals(again.get("id"), first.get("id")));
    try {
      insertJob("kind", "report", "args", report, "unique_opts", "{\"by_args\": true, \"on_conflict\": \"reject\"}");
    } catch (PSQLException error) {
      String detail = error.getServerErrorMessage().getDetail();
      System.out.println("rejected: " + error.getSQLState() + ", names the job: " + detail.contains(first.get("id").toString()));
    }

    try {
      placeOrder("Ann", true);
    } catch (IllegalStateException error) {
      System.out.println("rolled back: " + value("SELECT count(*) AS value FROM orders") + " orders");
    }
    placeOrder("Bob", false);
    System.out.println("committed: " + value("SELECT count(*) AS value FROM orders") + " orders");

    // Every type.
    job = insertJob(
        "kind", "types",
        "args", "{\"text\": \"ü ' \\\\ \\\"\", \"numbers\": [1, 2.5, 9007199254740993], \"none\": null}",
        "unique_opts", null,
        "queue", null,
        "priority", -5,
        "scheduled_at", OffsetDateTime.of(2030, 1, 2, 3, 4, 5, 0, ZoneOffset.ofHours(2)),
        "max_attempts", 3,
        "tags", db.createArrayOf("text", new String[] {"a b", "c,d", "say \"hi\"", ""}),
        "meta", "{\"note\": null}",
        "timeout", new PGInterval(0, 0, 0, 0, 0, 90),
        "retry", "\"oban\"",
        "expires_at", OffsetDateTime.of(2031, 1, 1, 0, 0, 0, 0, ZoneOffset.UTC),
        "pending", false);
    System.out.println("types: " + job.get("state") + " at " + ((Timestamp) job.get("scheduled_at")).toInstant().toString().replaceAll("[TZ]", " ").strip());
    insertJob("kind", "null_args", "args", "null"); // JSON null is a value, SQL NULL is none
    try {
      insertJob("kind", "null_args", "args", null);
    } catch (PSQLException error) {
      System.out.println("null args: " + error.getSQLState());
    }

    // Often the same statement, and many jobs in one.
    for (int n = 0; n < 20; n++) insertJob("kind", "counted", "args", "{\"n\": " + n + "}");
    System.out.println("repeated: 20 jobs, generic plan: "
        + value("SELECT coalesce(sum(generic_plans), 0) > 0 AS value FROM pg_prepared_statements WHERE statement LIKE '%jobs.insert(%'"));
    String line = "{\"kind\": \"line\", \"args\": {\"n\": 1}, \"unique_opts\": {\"by_args\": true}}";
    var many = rows("SELECT * FROM jobs.insert_many(?::jsonb)", "[" + line + "," + line + "," + line.replace("{\"n\": 1}", "null") + "]");
    System.out.println("insert_many: " + many.size() + " rows, " + many.stream().filter(row -> (boolean) row.get("unique_skipped_as_duplicate")).count() + " skipped");
    var batch = rows("SELECT * FROM jobs.insert_batch('page', ?)", db.createArrayOf("jsonb", new String[] {"{\"n\": 1}", "{\"n\": 2}"}));
    System.out.println("insert_batch: " + batch.size() + " rows");

    // A worker in its simplest form, until there is nothing left to do. It fetches and waits in
    // autocommit.
    String fetch = "SELECT id, token, (args->>'order')::bigint AS order FROM jobs.fetch('shipping', max_jobs => 10, worker => 'example', lease => ?)";
    while (true) {
      var jobs = rows(fetch, new PGInterval("1 minute"));
      for (var next : jobs) {
        Object state;
        try {
          state = ship(next);
        } catch (NoSuchElementException error) {
          state = value("SELECT state AS value FROM jobs.fail(?, ?, ?, retry_in => ?, details => ?::jsonb)",
              next.get("id"), next.get("token"), error.getMessage(), new PGInterval("1 hour"), "{\"type\": \"unknown_order\"}");
        }
        System.out.println("worker: order " + next.get("order") + " " + state);
      }
      if (!jobs.isEmpty()) continue;
      // A real worker waits longer, and repeats.
      rows("CALL jobs.wait('shipping', timeout => '100 ms')");
      break;
    }
    try {
      value("SELECT jobs.complete(?, 12345) AS value", first.get("id"));
    } catch (PSQLException error) {
      System.out.println("not ours: " + error.getSQLState());
    }
  }
}
