//! A walk over a value that is in memory already.

use std::borrow::Cow;

use serde_json::Value;

use super::{Event, Events};

/// A walk over events that were listed beforehand, such as those of a small document.
pub struct Listed(std::vec::IntoIter<Event<'static>>);

impl Listed {
    /// The walk over these events.
    pub fn new(events: Vec<Event<'static>>) -> Self {
        Self(events.into_iter())
    }
}

impl From<&Value> for Listed {
    fn from(value: &Value) -> Self {
        let mut events = Vec::new();
        list(value, &mut events);
        Self::new(events)
    }
}

impl Events for Listed {
    fn next(&mut self) -> Event<'_> {
        self.0.next().unwrap_or(Event::End)
    }

    fn skip_value(&mut self) {
        let mut depth = 0;
        loop {
            match self.next() {
                Event::BeginObject | Event::BeginArray => depth += 1,
                Event::EndObject | Event::EndArray => depth -= 1,
                Event::End => panic!("nothing to skip"),
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }
}

fn list(value: &Value, events: &mut Vec<Event<'static>>) {
    match value {
        Value::Null => events.push(Event::Null),
        Value::Bool(value) => events.push(Event::Bool(*value)),
        Value::Number(number) => events.push(Event::Number(Cow::Owned(number.to_string()))),
        Value::String(string) => events.push(Event::String(Cow::Owned(string.clone()))),
        Value::Array(elements) => {
            events.push(Event::BeginArray);
            elements.iter().for_each(|element| list(element, events));
            events.push(Event::EndArray);
        }
        Value::Object(members) => {
            events.push(Event::BeginObject);
            for (name, value) in members {
                events.push(Event::Name(Cow::Owned(name.clone())));
                list(value, events);
            }
            events.push(Event::EndObject);
        }
    }
}
