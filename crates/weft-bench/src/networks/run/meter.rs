//! Counts what happens to packets at the queues of a network, for each workload.

use std::cell::RefCell;
use std::rc::Rc;

use weft_sim::net::measure::Histogram;
use weft_sim::net::{Backlog, Discipline, Dropped, ECN_CE, Item, LinkId};

/// The packets of a workload's data. Acknowledgements do not count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Packets that passed their last queue.
    pub(super) passed: u64,
    /// Packets that a queue dropped.
    pub(super) dropped: u64,
    /// Packets that a queue marked.
    pub(super) marked: u64,
}

/// The counts, and the sum of a packet's waits at all queues of its route, in nanoseconds.
#[derive(Clone, Default)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    pub(super) waits: Histogram,
}

/// The route of a flow's data.
pub(super) struct FlowRoute {
    pub(super) workload: usize,
    pub(super) links: Vec<LinkId>,
}

/// A packet under way.
#[derive(Clone, Copy, Default)]
struct PacketState {
    id: u64,
    waited_ns: u64,
    is_marked: bool,
}

/// Counts for all links of a network.
#[derive(Default)]
pub(super) struct Meter {
    /// By flow.
    pub(super) routes: Vec<FlowRoute>,
    /// By workload.
    pub(super) tallies: Vec<Tally>,
    /// By handle.
    packets: Vec<PacketState>,
}

/// A queue at the head of a link, with counters.
pub(super) struct Metered {
    /// The number of the link.
    link: usize,
    inner: Box<dyn Discipline>,
    meter: Rc<RefCell<Meter>>,
}

impl Meter {
    /// Counts a packet that leaves the queue of a link, for its workload.
    fn leaves(&mut self, link: usize, item: &Item, now_ns: u64) {
        let Some(route) = route_of_data(&self.routes, link, item) else { return };
        let tally = &mut self.tallies[route.workload];
        let place = item.handle as usize;
        if place >= self.packets.len() {
            self.packets.resize((place + 1).next_power_of_two(), PacketState::default());
        }
        let packets = &mut self.packets[place];
        if packets.id != item.id {
            *packets = PacketState { id: item.id, ..PacketState::default() };
        }
        packets.waited_ns += now_ns - item.enqueued_at_ns;
        if item.ecn == ECN_CE && !packets.is_marked {
            packets.is_marked = true;
            tally.counts.marked += 1;
        }
        if route.links.last().is_some_and(|last| last.index() == link) {
            tally.counts.passed += 1;
            tally.waits.add(packets.waited_ns);
        }
    }

    fn drops(&mut self, link: usize, item: &Item) {
        if let Some(route) = route_of_data(&self.routes, link, item) {
            self.tallies[route.workload].counts.dropped += 1;
        }
    }
}

/// The route of the flow that a data packet belongs to. None for an acknowledgement, which uses other links.
fn route_of_data<'w>(routes: &'w [FlowRoute], link: usize, item: &Item) -> Option<&'w FlowRoute> {
    routes.get(item.flow as usize).filter(|route| route.links.iter().any(|other| other.index() == link))
}

impl Tally {
    /// Adds another tally.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.passed += other.counts.passed;
        self.counts.dropped += other.counts.dropped;
        self.counts.marked += other.counts.marked;
        self.waits.merge(&other.waits);
    }
}

impl Metered {
    pub(super) fn new(link: usize, inner: Box<dyn Discipline>, meter: &Rc<RefCell<Meter>>) -> Self {
        Self { link, inner, meter: Rc::clone(meter) }
    }
}

impl Discipline for Metered {
    fn enqueue(&mut self, item: Item, now_ns: u64) {
        self.inner.enqueue(item, now_ns);
    }

    fn set_rate(&mut self, bits_per_s: u64) {
        self.inner.set_rate(bits_per_s);
    }

    fn dequeue(&mut self, now_ns: u64) -> Option<Item> {
        let item = self.inner.dequeue(now_ns)?;
        self.meter.borrow_mut().leaves(self.link, &item, now_ns);
        Some(item)
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.inner.poll_timeout()
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.inner.handle_timeout(now_ns);
    }

    fn poll_drop(&mut self) -> Option<Dropped> {
        let dropped = self.inner.poll_drop()?;
        self.meter.borrow_mut().drops(self.link, &dropped.item);
        Some(dropped)
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }
}
