//! How the workers of a port take up a device that vanished and came back.
//!
//! The queues of a device hang together: sockets that share an interface do so as long as one of them is open, and a
//! new one cannot join them on an interface of the same name. So whoever finds the device gone tells the others, each
//! closes what it has, and only then does the owner of the port open all queues anew and deal them out.

use super::handoff::Doorbell;
use super::port::{self, PortConfig};
use super::{Device, OpenError};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the workers of one port know of its device together.
pub(super) struct Recovery {
    /// The number of times that the device went or came: odd while it is gone.
    turn: AtomicU32,
    held: Mutex<RecoveryState>,
    /// Of the workers.
    doorbells: Vec<Arc<Doorbell>>,
    /// The worker that opens queues, and has the first of them.
    owner: usize,
}

#[derive(Default)]
struct RecoveryState {
    /// Why the device is gone.
    why: String,
    /// Workers that have not closed their queues.
    n_open: usize,
    /// What is dealt out and not yet taken, a place for each worker.
    assigned: Vec<Vec<Box<dyn Device>>>,
}

impl Recovery {
    /// For a port whose device is there, and the workers with these bells.
    pub(super) fn new(doorbells: Vec<Arc<Doorbell>>, owner: usize) -> Self {
        Self { turn: AtomicU32::new(0), held: Mutex::default(), doorbells, owner }
    }

    /// The worker that opens queues.
    pub(super) fn owner(&self) -> usize {
        self.owner
    }

    /// The number of times that the device went or came: odd while it is gone. It starts at 0. It does not come before
    /// all workers have closed what they had.
    pub(super) fn turn(&self) -> u32 {
        self.turn.load(Ordering::Acquire)
    }

    /// The device is gone, for this reason if nobody has said so before; the turn that is now. The worker has yet to
    /// [close](Self::close) its queues.
    pub(super) fn note_lost(&self, why: String) -> u32 {
        let mut held = self.lock();
        if is_there(self.turn()) {
            *held = RecoveryState { why, n_open: self.doorbells.len(), assigned: Vec::new() };
            self.next_turn();
        }
        self.turn()
    }

    /// The worker has no queue of the device open any more; why it is gone.
    pub(super) fn close(&self) -> String {
        let mut held = self.lock();
        held.n_open -= 1;
        held.why.clone()
    }

    /// Opens the device, the `at`th port, if all have closed it and it is back, and deals its queues out.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(&self, config: &PortConfig, at: u16) -> Result<(), OpenError> {
        let n_workers = self.doorbells.len();
        if self.lock().n_open > 0 {
            return Ok(());
        }
        let opened = port::reopen(config, at, n_workers as u16)?;
        let mut assigned: Vec<Vec<Box<dyn Device>>> = (0..n_workers).map(|_| Vec::new()).collect();
        for (queue, device) in opened.into_iter().enumerate() {
            assigned[(self.owner + queue) % n_workers].push(device);
        }
        self.lock().assigned = assigned;
        self.next_turn();
        Ok(())
    }

    /// The queues that a worker has from now on.
    pub(super) fn take_queues(&self, worker: usize) -> Vec<Box<dyn Device>> {
        core::mem::take(&mut self.lock().assigned[worker])
    }

    fn next_turn(&self) {
        self.turn.fetch_add(1, Ordering::Release);
        self.doorbells.iter().for_each(|doorbell| doorbell.wake());
    }

    fn lock(&self) -> MutexGuard<'_, RecoveryState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device is there, by the turn.
pub(super) const fn is_there(turn: u32) -> bool {
    turn.is_multiple_of(2)
}
