//! `pgjobs cells`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::database::{Database, address};
use crate::failed::{Failed, REFUSED};
use crate::standby::Standby;
use crate::table::{Row, table};
use crate::terminal::print;
use crate::times::duration_text;

const EXAMPLES: &str =
    "Exits with 1 if a cell is down, if two databases have the same number, if one is not the cell \
that another one knows, or if settings differ that all cells have in common.
A cell and its standbys may share a number.

Examples:
  pgjobs cells postgresql://one.example/jobs postgresql://two.example/jobs
  pgjobs cells service=one service=two --json | jq -r 'select(.error) | .address'";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cells {
    /// Database name, URL or connection string of each cell
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
}

/// How long a cell may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const CELL: &str = "
select c.cell, c.identity, q.*, c.settings_digest, c.retired_at is not null as retired,
        (select jsonb_object_agg(k.cell, k.identity) from jobs.cells k
          where not k.is_self and k.identity is not null) as known
    from (select count(*) as queues, coalesce(sum(available), 0) as available,
              coalesce(sum(running), 0) as running,
              extract(epoch from clock_timestamp() - min(oldest_available_at))::float8
                  as oldest_seconds
              from jobs.queues) q
    left join jobs.cells c on c.is_self";

impl Cells {
    pub(crate) async fn run(self, json: bool) -> Result<(), Failed> {
        let mut asked = Vec::new();
        for url in self.urls {
            let database = Database::named(&url);
            let address = address(&database.config()?);
            asked.push((
                address,
                tokio::spawn(async move { timeout(PATIENCE, ask(&database)).await }),
            ));
        }
        let mut cells = Vec::new();
        for (address, answer) in asked {
            cells.push(match answer.await? {
                Ok(Ok((cell, standby))) => up(&address, cell, standby.as_ref()),
                Ok(Err(failed)) => down(&address, &failed.message),
                Err(_) => down(&address, &format!("no answer within {} s", PATIENCE.as_secs())),
            });
        }
        match json {
            true => cells.iter().for_each(print),
            false => show(&cells)?,
        }
        match faults(&cells) {
            faults if faults.is_empty() => Ok(()),
            faults => Err(Failed::new(REFUSED, faults.join("\n"))),
        }
    }
}

async fn ask(database: &Database) -> Result<(Value, Option<Standby>), Failed> {
    let client = database.connect().await?;
    let standby = Standby::of(&client).await?;
    let sql = format!("select to_jsonb(answer)::text from ({CELL}) answer");
    let cell = serde_json::from_str(client.query_one(&sql, &[]).await?.try_get(0)?)?;
    Ok((cell, standby))
}

/// A cell that answers the row of [`CELL`].
pub(crate) fn up(address: &str, mut cell: Value, standby: Option<&Standby>) -> Value {
    cell["address"] = address.into();
    cell["role"] = if standby.is_some() { "standby" } else { "primary" }.into();
    cell["lag_seconds"] = standby.and_then(|standby| standby.lag_seconds).into();
    cell["error"] = Value::Null;
    cell
}

pub(crate) fn down(address: &str, error: &str) -> Value {
    json!({ "address": address, "error": error })
}

fn show(cells: &[Value]) -> Result<(), Failed> {
    let rows = cells.iter().map(|cell| {
        let duration = |name: &str| cell[name].as_f64().map(duration_text);
        let mut row = cell.clone();
        row["lag"] = duration("lag_seconds").into();
        row["oldest"] = duration("oldest_seconds").into();
        row["settings"] = cell["settings_digest"].as_str().map(|digest| &digest[..8]).into();
        serde_json::from_str::<Row>(&row.to_string())
    });
    let columns = [
        "address",
        "cell",
        "identity",
        "role",
        "lag",
        "available",
        "running",
        "oldest",
        "settings",
        "retired",
        "error",
    ];
    table(&columns, &rows.collect::<Result<Vec<_>, _>>()?);
    Ok(())
}

/// What is wrong with cells of one application.
pub(crate) fn faults(cells: &[Value]) -> Vec<String> {
    let (up, down): (Vec<_>, Vec<_>) = cells.iter().partition(|cell| cell["error"].is_null());
    let mut faults: Vec<String> =
        down.iter().map(|cell| format!("{} is down", cell["address"])).collect();
    for (one, other) in up.iter().flat_map(|one| up.iter().map(move |other| (one, other))) {
        let known = &other["known"][one["cell"].to_string()];
        if !known.is_null() && *known != one["identity"] {
            let (cell, other) = (&one["cell"], &other["address"]);
            faults.push(format!("{} is not the cell {cell} that {other} knows", one["address"]));
        }
    }
    for (index, one) in up.iter().enumerate() {
        for other in &up[index + 1..] {
            let is_standby = one["identity"] == other["identity"]
                && [one, other].iter().any(|cell| cell["role"] == "standby");
            if one["cell"] == other["cell"] && !is_standby {
                let number = match &one["cell"] {
                    Value::Null => "no cell number".into(),
                    number => format!("cell number {number}"),
                };
                faults.push(format!(
                    "{} and {} both have {number}",
                    one["address"], other["address"]
                ));
            }
        }
    }
    // A standby that is behind has yet to replay what its primary has.
    let is_current = |cell: &&&Value| cell["role"] == "primary" || cell["lag_seconds"] == 0.0;
    let current: Vec<_> = up.iter().filter(is_current).collect();
    if current.windows(2).any(|pair| pair[0]["settings_digest"] != pair[1]["settings_digest"]) {
        faults.push("placements, kinds, limits or orders differ between cells".into());
    }
    faults
}
