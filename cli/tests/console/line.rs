//! A way to the server that can lose everything.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::support::url;

/// While it is silent it takes what is sent, and loses it.
pub struct Line {
    /// The database of the company, at the near end.
    pub url: String,
    is_silent: Arc<AtomicBool>,
    /// How many connections the console has begun, and how many of them it has closed.
    begun: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    /// How many it has had at once.
    most: Arc<AtomicUsize>,
}

impl Line {
    pub fn new() -> Self {
        let near = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = near.local_addr().unwrap().to_string();
        let far = url().split('/').nth(2).unwrap().to_owned();
        let line = Self {
            url: url().replace(&far, &address),
            is_silent: Arc::default(),
            begun: Arc::default(),
            closed: Arc::default(),
            most: Arc::default(),
        };
        let is_silent = line.is_silent.clone();
        let (begun, closed) = (line.begun.clone(), line.closed.clone());
        let most = line.most.clone();
        thread::spawn(move || {
            for near in near.incoming() {
                let begun = begun.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(begun - closed.load(Ordering::SeqCst), Ordering::SeqCst);
                let (near, far) = (near.unwrap(), TcpStream::connect(&far).unwrap());
                let (to_near, from_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (is_silent, is_silent_back) = (is_silent.clone(), is_silent.clone());
                let closed = closed.clone();
                thread::spawn(move || {
                    carry(near, far, &is_silent);
                    closed.fetch_add(1, Ordering::SeqCst);
                });
                thread::spawn(move || carry(from_far, to_near, &is_silent_back));
            }
        });
        line
    }

    pub fn is_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::SeqCst);
    }

    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// How many connections the console has had at once. One that it has just closed may count.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// How many connections the console has.
    pub fn open(&self) -> usize {
        let closed = self.closed.load(Ordering::SeqCst);
        self.begun() - closed
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_silent: &AtomicBool) {
    let mut part = [0; 8192];
    while let Ok(length @ 1..) = from.read(&mut part) {
        if !is_silent.load(Ordering::SeqCst) && to.write_all(&part[..length]).is_err() {
            break;
        }
    }
    // The other end may have gone as well.
    let _ = to.shutdown(Shutdown::Both);
}
