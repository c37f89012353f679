//! Coordinates the workers of a port when its device disappears and comes back.
//!
//! The queues of a device depend on each other: sockets share an interface as long as one of them is open, and a new
//! socket cannot join them on another interface of the same name. So the first worker that finds the device gone
//! notifies the others. Each closes its queues; only then does the owner of the port open all queues again and
//! distribute them.

use super::handoff::Doorbell;
use super::port;
use super::{Device, OpenError};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_engine::packet::port::PortConfig;

/// The state of a device, shared by the workers of its port.
pub(super) struct Recovery {
    /// How often the device was lost or recovered: odd while it is lost.
    turn: AtomicU32,
    held: Mutex<RecoveryState>,
    /// The doorbells of the workers.
    doorbells: Vec<Arc<Doorbell>>,
    /// The worker that opens queues, and gets the first.
    owner: usize,
}

#[derive(Default)]
struct RecoveryState {
    /// Why the device is gone.
    why: String,
    /// Number of workers that have not closed their queues.
    n_open: usize,
    /// Queues that workers have not yet taken, by worker.
    assigned: Vec<Vec<Box<dyn Device>>>,
}

impl Recovery {
    /// For a port with its device, and workers with these doorbells.
    pub(super) fn new(doorbells: Vec<Arc<Doorbell>>, owner: usize) -> Self {
        Self { turn: AtomicU32::new(0), held: Mutex::default(), doorbells, owner }
    }

    /// The worker that opens queues.
    pub(super) fn owner(&self) -> usize {
        self.owner
    }

    /// How often the device was lost or recovered, from 0: odd while it is lost. It becomes even only after all workers
    /// have closed their queues.
    pub(super) fn turn(&self) -> u32 {
        self.turn.load(Ordering::Acquire)
    }

    /// Reports that the device is lost; the first report sets the reason. Returns the current turn. The worker must
    /// still [close](Self::close) its queues.
    pub(super) fn report_lost(&self, why: String) -> u32 {
        let mut held = self.lock();
        if is_there(self.turn()) {
            *held = RecoveryState { why, n_open: self.doorbells.len(), assigned: Vec::new() };
            self.next_turn();
        }
        self.turn()
    }

    /// Reports that the worker has closed its queues; returns the reason of the loss.
    pub(super) fn close(&self) -> String {
        let mut held = self.lock();
        held.n_open -= 1;
        held.why.clone()
    }

    /// Opens the device of port `at` if all workers have closed it, and distributes its queues.
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

    /// Takes a worker's new queues.
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

/// Whether the device exists in this turn.
pub(super) const fn is_there(turn: u32) -> bool {
    turn.is_multiple_of(2)
}
