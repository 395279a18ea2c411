//! What jobs-core promises, by what its users can reach. One program: sixteen would each be linked.

mod canonical;
mod clock;
mod counts;
mod dialects;
mod dimension;
mod duration;
mod keys;
mod policy;
mod policy_properties;
mod policy_words;
mod properties;
mod retry;
mod retry_properties;
mod schedule;
mod schedule_clocks;
mod schedule_properties;
mod support;
mod time;
mod vectors;
mod verdict;
mod zone_names;
