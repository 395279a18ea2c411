//! What a worker says: a thread of its own writes it, so that no job waits for whoever reads it.

use std::io::{Result, Write};
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// How many bytes can wait to be written.
const CAPACITY: usize = 8 << 20;
/// How long the end of the program waits for a reader.
const PATIENCE: Duration = Duration::from_secs(1);

/// A stream. What is said to it waits for its thread; what finds no room is dropped, and counted.
#[derive(Clone, Default)]
pub(crate) struct Output(Arc<Buffer>);

#[derive(Default)]
struct Buffer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    is_writing: bool,
    dropped: usize,
}

impl Output {
    pub(crate) fn new(name: &'static str, to: impl Write + Send + 'static) -> Self {
        let output = Self::default();
        let written = output.clone();
        thread::spawn(move || written.pass_on(name, to));
        output
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic")
    }

    pub(crate) fn say(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.waiting.len() + bytes.len() <= CAPACITY {
            state.waiting.extend_from_slice(bytes);
        } else {
            state.dropped += 1;
        }
        drop(state);
        self.0.changed.notify_all();
    }

    fn pass_on(&self, name: &str, mut to: impl Write) {
        loop {
            let is_empty = |state: &mut State| state.waiting.is_empty();
            let state = self.0.changed.wait_while(self.state(), is_empty);
            let mut state = state.expect("no panic");
            let bytes = take(&mut state.waiting);
            state.is_writing = true;
            drop(state);
            // Where nobody reads it, or it has no space, the jobs go on all the same.
            let _ = to.write_all(&bytes);
            let mut state = self.state();
            state.is_writing = false;
            let dropped = take(&mut state.dropped);
            drop(state);
            self.0.changed.notify_all();
            if dropped > 0 {
                tracing::warn!(dropped, "{name} was not read in time");
            }
        }
    }

    /// Waits until all is written, unless nobody reads it.
    pub(crate) fn finish(&self) {
        let is_left = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        let waited = self
            .0
            .changed
            .wait_timeout_while(self.state(), PATIENCE, is_left);
        drop(waited.expect("no panic"));
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.say(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
