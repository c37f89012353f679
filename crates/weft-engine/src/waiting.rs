//! Calls that wait for a stream to one endpoint: FIFO per client, round robin between clients.
//!
//! A client is a downstream connection. A client gets one stream per round, whether it has one waiting call or a
//! thousand. So no call waits longer than a round for other clients.

use crate::call::CallKey;
use crate::conn::ConnKey;
use std::collections::{BTreeMap, VecDeque};
use weft_core::Time;

/// The most calls that wait for a stream to one endpoint. Beyond it, the client with the most loses its last one.
pub(crate) const WAITING_MAX: usize = 16 << 10;

/// The client of a call: a downstream connection, or None for copies and detached calls.
type Client = Option<u64>;

/// A waiting call, and since when it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) call: CallKey,
    pub(crate) since: Time,
    client: Client,
}

/// The waiting calls of an endpoint. Some may have ended; the caller of [`WaitingCalls::pop`] checks that.
#[derive(Debug, Default)]
pub(crate) struct WaitingCalls {
    /// No queue is empty.
    queues: BTreeMap<Client, VecDeque<Waiter>>,
    /// The clients of `queues`, each once; the first is next.
    turns: VecDeque<Client>,
    len: usize,
}

impl Waiter {
    pub(crate) fn new(call: CallKey, client: Option<ConnKey>, since: Time) -> Self {
        Self { call, since, client: client.map(ConnKey::to_bits) }
    }
}

impl WaitingCalls {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a call behind the others of its client.
    pub(crate) fn push(&mut self, waiter: Waiter) {
        let queue = self.queues.entry(waiter.client).or_default();
        if queue.is_empty() {
            self.turns.push_back(waiter.client);
        }
        queue.push_back(waiter);
        self.len += 1;
    }

    /// Takes the next call: the first of the client whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        let client = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&client).expect("a client that has a turn has calls");
        let waiter = queue.pop_front().expect("a queue has calls");
        if queue.is_empty() {
            self.queues.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        self.len -= 1;
        Some(waiter)
    }

    /// Puts the call that was taken last back as the next.
    pub(crate) fn put_back(&mut self, waiter: Waiter) {
        let queue = self.queues.entry(waiter.client).or_default();
        if !queue.is_empty() {
            // Its client moved to the end.
            let at = self.turns.iter().rposition(|client| *client == waiter.client);
            self.turns.remove(at.expect("a client that has calls has a turn"));
        }
        self.turns.push_front(waiter.client);
        queue.push_front(waiter);
        self.len += 1;
    }

    /// Takes the last call of the client with the most calls, if it has at least two more than this one.
    pub(crate) fn displace(&mut self, for_client: Option<ConnKey>) -> Option<Waiter> {
        let own = self.queues.get(&for_client.map(ConnKey::to_bits)).map_or(0, VecDeque::len);
        let (client, queue) = self.queues.iter_mut().max_by_key(|(_, queue)| queue.len())?;
        if queue.len() < own + 2 {
            return None;
        }
        let (waiter, client) = (queue.pop_back(), *client);
        assert!(self.queues.get(&client).is_some_and(|queue| !queue.is_empty()), "it had two at least");
        self.len -= 1;
        waiter
    }

    /// Keeps the calls for which `keeps` is true.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&Waiter) -> bool) {
        self.queues.retain(|_, queue| {
            queue.retain(&mut keeps);
            !queue.is_empty()
        });
        let queues = &self.queues;
        self.turns.retain(|client| queues.contains_key(client));
        self.len = self.queues.values().map(VecDeque::len).sum();
    }

    /// Takes the calls that have waited since this time or longer, the longest first.
    pub(crate) fn take_older(&mut self, since: Time) -> Vec<Waiter> {
        let mut older = Vec::new();
        // Later calls of a queue have waited less.
        for queue in self.queues.values_mut() {
            while let Some(waiter) = queue.pop_front_if(|waiter| waiter.since <= since) {
                older.push(waiter);
            }
        }
        self.retain(|_| true);
        older.sort_by_key(|waiter| waiter.since);
        older
    }

    /// When the longest-waiting call started to wait.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.queues.values().filter_map(|queue| Some(queue.front()?.since)).min()
    }

    /// Takes all calls, in round-robin order.
    pub(crate) fn drain(&mut self) -> Vec<Waiter> {
        core::iter::from_fn(|| self.pop()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Key;
    use weft_core::rng::Rng;

    fn waiter(call: u64, client: u64, since: i64) -> Waiter {
        Waiter::new(Key::from_bits(call), Some(Key::from_bits(client)), Time(since))
    }

    fn client(bits: u64) -> Option<ConnKey> {
        Some(Key::from_bits(bits))
    }

    fn order(waiting: &mut WaitingCalls) -> Vec<u64> {
        waiting.drain().iter().map(|waiter| waiter.call.to_bits()).collect()
    }

    #[test]
    fn clients_are_served_round_robin() {
        // If it failed, a client with many calls would keep another client's only call waiting for all of them.
        let mut waiting = WaitingCalls::default();
        (0..4).for_each(|call| waiting.push(waiter(call, 1, 0)));
        waiting.push(waiter(10, 2, 5));
        (20..22).for_each(|call| waiting.push(waiter(call, 3, 6)));
        let first = waiting.pop().expect("it has some");
        waiting.put_back(first);
        assert_eq!(order(&mut waiting), [0, 10, 20, 1, 21, 2, 3]);
    }

    #[test]
    fn newcomer_displaces_longest_queue() {
        // If it failed, a client that fills the limit would have every other client's calls refused.
        let mut waiting = WaitingCalls::default();
        (0..3).for_each(|call| waiting.push(waiter(call, 1, 0)));
        waiting.push(waiter(10, 2, 0));
        let displaced = waiting.displace(client(2)).map(|waiter| waiter.call.to_bits());
        assert_eq!(displaced, Some(2));
        assert!(waiting.displace(client(2)).is_none(), "both would have two");
        assert!(waiting.displace(client(1)).is_none(), "it has the most itself");
        assert_eq!(order(&mut waiting), [0, 10, 1]);
    }

    #[test]
    fn calls_are_not_lost_or_doubled() {
        // A lost call would never get a result; a doubled one would take two streams.
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let (mut waiting, mut held) = (WaitingCalls::default(), Vec::new());
            for now in 0..300 {
                match rng.below(6) {
                    0..=2 => {
                        held.push((now, now));
                        waiting.push(waiter(now as u64, rng.below(4) as u64, now));
                    }
                    3 => {
                        let taken = waiting.pop();
                        assert_eq!(taken.is_some(), !held.is_empty());
                        let Some(taken) = taken else { continue };
                        if rng.percent(40) {
                            waiting.put_back(taken);
                            assert_eq!(waiting.pop().map(|next| next.call), Some(taken.call));
                        }
                        held.retain(|(call, _)| *call as u64 != taken.call.to_bits());
                    }
                    4 => {
                        let since = now - rng.below(40) as i64;
                        let older = waiting.take_older(Time(since));
                        let wanted = held.iter().filter(|(_, came)| *came <= since);
                        let wanted: Vec<u64> = wanted.map(|(call, _)| *call as u64).collect();
                        let older: Vec<u64> = older.iter().map(|waiter| waiter.call.to_bits()).collect();
                        assert_eq!(older, wanted);
                        held.retain(|(_, came)| *came > since);
                    }
                    _ => {
                        let odd = |call: u64| call % 5 != 1;
                        waiting.retain(|waiter| odd(waiter.call.to_bits()));
                        held.retain(|(call, _)| odd(*call as u64));
                    }
                }
                assert_eq!(waiting.len(), held.len());
                assert_eq!(waiting.oldest(), held.iter().map(|(_, came)| Time(*came)).min());
                assert_eq!(waiting.is_empty(), held.is_empty());
            }
            let mut left = order(&mut waiting);
            left.sort_unstable();
            assert_eq!(left, held.iter().map(|(call, _)| *call as u64).collect::<Vec<_>>());
        }
    }
}
