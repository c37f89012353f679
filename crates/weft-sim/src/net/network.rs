//! The simulation loop: links, flows, and the order of their events.

use std::collections::VecDeque;

use super::discipline::{Backlog, Discipline, ECN_CE, Item};
use super::link::{Link, LinkSpec, LinkStats};
use super::packet::{PACKETS_MAX, Packet, Packets};
use super::portable_math::exponential;
use super::sizes::Sizes;
use super::tcp::{Ack, Receiver, Sender, SenderSpec, SenderStats};
use super::tournament::{NEVER, Tournament};
use weft_core::hash;
use weft_core::rng::Rng;

/// Size of an acknowledgement on the wire, in bytes.
const ACK_BYTES: u32 = 60;
/// Messages of a flow with recorded times; later ones are only counted.
pub const COMPLETIONS_MAX: usize = 1 << 22;
/// Maximum number of links in a path.
pub const HOPS_MAX: usize = 64;

/// A link of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub(super) u32);

impl LinkId {
    /// Its number from 0, in the order of addition.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A flow of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(u32);

/// How an application uses its flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// It always has more to send. Used for bulk transfers, and for the paper's interactive flows, which only differ in
    /// their objective: throughput over delay.
    Endless,
    /// Messages one at a time on one connection, with random pauses between them.
    OnOff {
        /// The sizes of the messages.
        sizes: Sizes,
        /// The mean pause; pauses are exponentially distributed.
        off_mean_ns: u64,
    },
    /// Messages of a Poisson process, independent of earlier messages: calls on one connection.
    Poisson {
        /// The sizes of the messages.
        sizes: Sizes,
        /// The mean time between messages.
        gap_mean_ns: u64,
    },
}

/// A flow: its paths, its sender and its application.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// The links of the data path, in order.
    pub forward: Vec<LinkId>,
    /// The links of the acknowledgement path, in order.
    pub back: Vec<LinkId>,
    /// The sender.
    pub sender: SenderSpec,
    /// The application.
    pub workload: Workload,
    /// The class in its packets: [`Item::class`].
    pub class: u8,
    /// When the application starts.
    pub start_ns: u64,
}

/// A message that the sender knows to have arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its number of segments.
    pub segments: u32,
    /// When the application submitted it.
    pub began_ns: u64,
    /// Time from then to its last acknowledgement.
    pub took_ns: u64,
}

/// The statistics of a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowStats<'n> {
    /// The statistics of its sender.
    pub sender: &'n SenderStats,
    /// Segments that arrived, without duplicates.
    pub received: u64,
    /// Bytes on the wire of these segments.
    pub received_bytes: u64,
    /// Its completed messages, in order.
    pub completions: &'n [Completion],
    /// Messages beyond [`COMPLETIONS_MAX`].
    pub uncounted: u64,
    /// Its messages in flight.
    pub unfinished: &'n VecDeque<Pending>,
    /// The congestion window, in segments.
    pub window: f64,
}

/// A message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The first segment after it.
    end: u32,
    /// Its number of segments.
    segments: u32,
    /// When the application submitted it.
    pub began_ns: u64,
}

struct Flow {
    spec: FlowSpec,
    sender: Sender,
    receiver: Receiver,
    pending: VecDeque<Pending>,
    completions: Vec<Completion>,
    uncounted: u64,
    /// When the application submits its next message.
    next_message_ns: u64,
    rng: Rng,
    source: usize,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Link(usize),
    Flow(usize),
}

/// A packet network under a virtual clock of nanoseconds.
///
/// Add links and flows, then call [`Net::run_until`]. The seed determines the run. An application depends on the seed
/// and the number of its flow only, so runs with different queues have the same load.
pub struct Net {
    now_ns: u64,
    seed: u64,
    events: Tournament,
    sources: Vec<Source>,
    links: Vec<(Link, usize)>,
    flows: Vec<Flow>,
    packets: Packets,
    n_events: u64,
    /// Packets that were not created, because [`PACKETS_MAX`] were in flight.
    refused: u64,
}

impl Net {
    /// A network without links.
    pub fn new(seed: u64) -> Self {
        Self {
            now_ns: 0,
            seed,
            events: Tournament::new(),
            sources: Vec::new(),
            links: Vec::new(),
            flows: Vec::new(),
            packets: Packets::default(),
            n_events: 0,
            refused: 0,
        }
    }

    /// Adds a link with a queue.
    pub fn add_link(&mut self, spec: LinkSpec, queue: Box<dyn Discipline>) -> LinkId {
        let source = self.events.add();
        self.sources.push(Source::Link(self.links.len()));
        let seed = hash::stream(self.seed, "link", self.links.len() as u64);
        self.links.push((Link::new(spec, queue, seed), source));
        LinkId(self.links.len() as u32 - 1)
    }

    /// Adds a flow.
    ///
    /// # Panics
    /// If a path is empty or longer than [`HOPS_MAX`], or names a link of another network.
    pub fn add_flow(&mut self, spec: FlowSpec) -> FlowId {
        for path in [&spec.forward, &spec.back] {
            assert!((1..=HOPS_MAX).contains(&path.len()), "a path has 1 to {HOPS_MAX} links");
            assert!(path.iter().all(|link| (link.0 as usize) < self.links.len()), "a link of this network");
        }
        let number = self.flows.len();
        let source = self.events.add();
        self.sources.push(Source::Flow(number));
        let mut rng = Rng::of_stream(self.seed, "flow", number as u64);
        // Applications with messages start at a random time within their first pause, so that they are not
        // synchronized.
        let first = match spec.workload {
            Workload::Endless => 0.0,
            Workload::OnOff { off_mean_ns, .. } => exponential(&mut rng, off_mean_ns as f64) / 2.0,
            Workload::Poisson { gap_mean_ns, .. } => exponential(&mut rng, gap_mean_ns as f64),
        };
        let next_message_ns = spec.start_ns + first as u64;
        self.events.set(source, next_message_ns);
        let sender = Sender::new(spec.sender);
        self.flows.push(Flow {
            spec,
            sender,
            receiver: Receiver::default(),
            pending: VecDeque::new(),
            completions: Vec::new(),
            uncounted: 0,
            next_message_ns,
            rng,
            source,
        });
        FlowId(number as u32)
    }

    /// The current time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Runs all events up to and including `end_ns`.
    pub fn run_until(&mut self, end_ns: u64) {
        while let Some((source, at_ns)) =
            self.events.least().filter(|(_, at_ns)| *at_ns <= end_ns && *at_ns != NEVER)
        {
            self.now_ns = at_ns;
            self.n_events += 1;
            match self.sources[source] {
                Source::Link(link) => self.run_link(link),
                Source::Flow(flow) => self.run_flow(flow),
            }
        }
        self.now_ns = self.now_ns.max(end_ns);
    }

    /// The statistics of a flow.
    pub fn flow(&self, flow: FlowId) -> FlowStats<'_> {
        let flow = &self.flows[flow.0 as usize];
        let received = flow.receiver.received();
        FlowStats {
            sender: &flow.sender.stats,
            received,
            received_bytes: received * u64::from(flow.spec.sender.payload + flow.spec.sender.header),
            completions: &flow.completions,
            uncounted: flow.uncounted,
            unfinished: &flow.pending,
            window: flow.sender.window(),
        }
    }

    /// The statistics of a link.
    pub fn link(&self, link: LinkId) -> &LinkStats {
        &self.links[link.0 as usize].0.stats
    }

    /// The contents of a link's queue.
    pub fn backlog(&self, link: LinkId) -> Backlog {
        self.links[link.0 as usize].0.backlog()
    }

    /// The number of packets created, data and acknowledgements.
    pub fn packets_made(&self) -> u64 {
        self.packets.made()
    }

    /// The number of processed events.
    pub fn events(&self) -> u64 {
        self.n_events
    }

    /// Checks that the packets that entered the links equal those that left, were dropped, or are still there.
    ///
    /// # Errors
    /// A sentence that names the counters that disagree.
    pub fn conservation(&self) -> Result<(), String> {
        let mut held = 0;
        for (number, (link, _)) in self.links.iter().enumerate() {
            let (stats, queued, way) = (&link.stats, link.backlog().packets, link.in_transit() as u64);
            held += queued + way;
            if stats.entered != stats.sent + stats.dropped + queued {
                return Err(format!(
                    "link {number}: entered is not sent + dropped + queued: {stats:?}, {queued}"
                ));
            }
            if stats.sent != stats.arrived + stats.lost + way {
                return Err(format!(
                    "link {number}: sent is not arrived + lost + in transit: {stats:?}, {way}"
                ));
            }
        }
        let n_in_flight = self.packets.n_in_flight() as u64;
        if n_in_flight != held {
            return Err(format!("{n_in_flight} packets are in flight, but links hold {held}"));
        }
        if self.refused > 0 {
            return Err(format!("{} packets were refused: {PACKETS_MAX} were in flight", self.refused));
        }
        Ok(())
    }

    /// An event of a link: a packet arrives at its end or leaves its queue, or its queue's timer expires.
    fn run_link(&mut self, number: usize) {
        while let Some(traveller) = self.links[number].0.poll_arrival(self.now_ns) {
            if traveller.is_lost {
                self.packets.remove(traveller.handle);
            } else {
                self.arrive(traveller.handle);
            }
        }
        self.push_link(number);
    }

    /// Sends what a link can send now, releases dropped packets, and updates the link's deadline.
    fn push_link(&mut self, number: usize) {
        let (link, source) = &mut self.links[number];
        while let Some(item) = link.poll_send(self.now_ns) {
            self.packets.get(item.handle).item.ecn = item.ecn;
        }
        while let Some(dropped) = link.queue.poll_drop() {
            link.stats.dropped += 1;
            self.packets.remove(dropped.item.handle);
        }
        self.events.set(*source, link.deadline(self.now_ns));
    }

    /// A packet arrives at a link's queue.
    fn enter(&mut self, link: LinkId, item: Item) {
        self.links[link.0 as usize].0.enter(item, self.now_ns);
        self.push_link(link.0 as usize);
    }

    /// Handles a packet's arrival at the end of a link: it enters the next link, or reaches its receiver or sender.
    fn arrive(&mut self, handle: u32) {
        let packet = self.packets.get(handle);
        packet.hop += 1;
        let (hop, item, is_ack) = (usize::from(packet.hop), packet.item, packet.is_ack);
        let flow = item.flow as usize;
        let spec = &self.flows[flow].spec;
        let path = if is_ack { &spec.back } else { &spec.forward };
        match path.get(hop) {
            Some(link) => self.enter(*link, item),
            None if is_ack => self.take_ack(flow, handle),
            None => self.take_data(flow, handle),
        }
    }

    /// Data arrives at its receiver, which acknowledges it at once. The packet becomes its acknowledgement.
    fn take_data(&mut self, number: usize, handle: u32) {
        let flow = &mut self.flows[number];
        let packet = self.packets.renumbered(handle);
        flow.receiver.arrive(packet.seq);
        packet.seq = flow.receiver.expected();
        packet.sack = flow.receiver.blocks();
        packet.is_ack = true;
        packet.is_marked = packet.item.ecn == ECN_CE;
        packet.hop = 0;
        packet.item = Item { len: ACK_BYTES, remaining: ACK_BYTES, ecn: 0, ..packet.item };
        let (link, item) = (flow.spec.back[0], packet.item);
        self.enter(link, item);
    }

    /// Gives an arrived acknowledgement to the flow's sender, frees the packet, and sends what the sender now may.
    fn take_ack(&mut self, number: usize, handle: u32) {
        let flow = &mut self.flows[number];
        let packet = self.packets.get(handle);
        let ack =
            Ack { expected: packet.seq, sack: packet.sack, stamp: packet.stamp, is_marked: packet.is_marked };
        self.packets.remove(handle);
        flow.sender.handle_ack(&ack, self.now_ns);
        flow.finish_messages(self.now_ns);
        self.push_flow(number);
    }

    /// A flow's timer expires, or its application submits a message.
    fn run_flow(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        // The key may be too early: postponing a timer does not update it.
        if flow.next_message_ns <= self.now_ns {
            flow.begin_message(self.now_ns);
        }
        flow.sender.handle_timeout(self.now_ns);
        self.events.set(flow.source, NEVER);
        self.push_flow(number);
    }

    /// Sends what a flow may send now, and updates the flow's deadline.
    fn push_flow(&mut self, number: usize) {
        while let Some((seq, stamp)) = self.flows[number].sender.poll_send(self.now_ns) {
            let flow = &self.flows[number];
            let (link, item) = (flow.spec.forward[0], flow.item(number, seq));
            let packet = Packet { item, stamp, seq, ..Packet::default() };
            // A refused packet counts as lost in the path.
            match self.packets.add(packet) {
                Some(handle) => {
                    let item = self.packets.get(handle).item;
                    self.enter(link, item);
                }
                None => self.refused += 1,
            }
        }
        let flow = &self.flows[number];
        let deadline = flow.sender.poll_timeout().min(flow.next_message_ns);
        if deadline < self.events.key(flow.source) {
            self.events.set(flow.source, deadline);
        }
    }
}

impl Flow {
    /// The queue item of a data segment, with the bytes that remain of its message.
    fn item(&self, number: usize, seq: u32) -> Item {
        let spec = &self.spec.sender;
        let message = self.pending.partition_point(|message| message.end <= seq);
        let remaining = self
            .pending
            .get(message)
            .map_or(u32::MAX, |message| (message.end - seq).saturating_mul(spec.payload));
        Item {
            len: spec.payload + spec.header,
            flow: number as u32,
            remaining,
            class: self.spec.class,
            ecn: u8::from(spec.ecn),
            ..Item::default()
        }
    }

    /// The application submits its next message.
    fn begin_message(&mut self, now_ns: u64) {
        self.next_message_ns = NEVER;
        let sizes = match self.spec.workload {
            Workload::Endless => return self.sender.give(u32::MAX),
            Workload::OnOff { sizes, .. } => sizes,
            Workload::Poisson { sizes, gap_mean_ns } => {
                self.next_message_ns = now_ns + exponential(&mut self.rng, gap_mean_ns as f64) as u64;
                sizes
            }
        };
        let bytes = sizes.draw(&mut self.rng);
        let segments =
            bytes.div_ceil(u64::from(self.spec.sender.payload)).clamp(1, u64::from(u32::MAX / 2)) as u32;
        self.sender.give(segments);
        self.pending.push_back(Pending { end: self.sender.given(), segments, began_ns: now_ns });
    }

    /// Records the messages that have arrived. After one of them there may be a pause.
    fn finish_messages(&mut self, now_ns: u64) {
        while let Some(first) = self.pending.front().copied()
            && first.end <= self.sender.acknowledged()
        {
            self.pending.pop_front();
            let Pending { segments, began_ns, .. } = first;
            if self.completions.len() < COMPLETIONS_MAX {
                self.completions.push(Completion { segments, began_ns, took_ns: now_ns - began_ns });
            } else {
                self.uncounted += 1;
            }
            if let Workload::OnOff { off_mean_ns, .. } = self.spec.workload {
                self.next_message_ns = now_ns + exponential(&mut self.rng, off_mean_ns as f64) as u64;
            }
        }
    }
}
