//! What makes a job unique.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::State;

/// What makes a job unique: the parts in which a duplicate equals it.
///
/// ```
/// # use postgres_jobs::{By, Unique};
/// # use std::time::Duration;
/// let once_a_day = Unique {
///     by_args: Some(By::Paths(vec!["customer".into()])),
///     by_period: Some(Duration::from_secs(86_400)),
///     ..Unique::default()
/// };
/// ```
///
/// The default means not unique, even if the kind is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Unique {
    /// By kind alone.
    pub by_kind: bool,
    /// By all args, or some of them.
    pub by_args: Option<By>,
    /// By some of its meta.
    pub by_meta: Option<By>,
    /// Also by queue.
    pub by_queue: bool,
    /// Also by the time it is due or inserted, rounded down to a multiple of this.
    #[serde(with = "seconds")]
    pub by_period: Option<Duration>,
    /// The states in which an existing job conflicts. Default: all but cancelled and discarded.
    pub by_state: Option<Vec<State>>,
    /// An existing job conflicts only while it is younger than this.
    #[serde(with = "seconds")]
    pub window: Option<Duration>,
    /// The start of the window: `created_at`, the default, or `scheduled_at`.
    pub window_from: Option<String>,
    /// How long the job holds its key, even if it is deleted.
    #[serde(with = "seconds")]
    pub hold_for: Option<Duration>,
    /// What releases the hold early: `success`, the default, or `start`.
    pub hold_until: Option<String>,
    /// Jobs of other kinds are duplicates, too.
    pub exclude_kind: bool,
    /// Use this text instead of args, meta, queue and period.
    pub key: Option<String>,
    /// What happens to a duplicate. Default: it is skipped.
    pub on_conflict: Option<OnConflict>,
    /// False: skip the job while another transaction is inserting its key.
    pub wait: Option<bool>,
}

/// Which members of args or meta are compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum By {
    /// All of them: [`By::ALL`].
    All(bool),
    /// The members at these paths, such as `customer` or `address.city`.
    Paths(Vec<String>),
}

impl By {
    /// All members.
    pub const ALL: Self = Self::All(true);
}

/// What happens to a duplicate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// Nothing is inserted; the result is the existing job.
    Skip,
    /// The insert is refused with SQLSTATE 23505.
    Reject,
    /// Existing jobs that are not final are cancelled, and the new one is inserted.
    Replace,
    /// As `Replace`, and the new job keeps the time of the one that it replaces.
    ReplaceExceptSchedule,
    /// The existing job takes these fields of the new one, by its state, or by `*` for any state.
    Update(BTreeMap<String, Vec<String>>),
}

/// Durations as the database reads them. The longest means none.
pub(crate) mod seconds {
    use super::*;

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        let seconds = |one| match one {
            Duration::MAX => -1.0,
            limit => limit.as_secs_f64(),
        };
        duration.map(seconds).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(from)?;
        let duration = seconds.map(Duration::try_from_secs_f64).transpose();
        duration.map_err(serde::de::Error::custom)
    }
}
