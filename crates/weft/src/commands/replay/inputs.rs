//! The captures that a replay reads, as one stream in the order of their times.

use super::choice::Arrival;
use super::report::InputReport;
use crate::cli::{ReplayArgs, Speed};
use crate::commands::grouped;
use crate::fault::Fault;
use crate::stderr;
use std::collections::VecDeque;
use std::io;
use weft_core::Time;
use weft_core::frame::{Frame, Pool, PoolConfig};
use weft_engine::packet::plan::PacketPlan;
use weft_io::packet::file::{FileSource, Pace, UnfinishedCounts};
use weft_io::packet::{BATCH_MAX, Device as _, Link, OpenError, QueueId};
use weft_proto::capture::{self, LinkType};

/// One of so many packets has to lack what its device was to do, if that is worth a word.
const HINT_FROM: u64 = 10;
/// Captures of one replay.
pub(super) const INPUTS_MAX: usize = 64;

/// Captures, read together.
pub(super) struct Inputs {
    all: Vec<Input>,
    speed: Speed,
    /// When the first packet of all was captured, and when it was given.
    begin: Option<(Time, Time)>,
}

/// A capture, of which a batch is read ahead: when its next packet was captured decides whose turn it is.
struct Input {
    file: String,
    port: u16,
    source: FileSource,
    ahead: VecDeque<Frame>,
    /// Packets that were given.
    n: u64,
    /// Why it ended before its end.
    broken: Option<io::Error>,
}

impl Inputs {
    /// Opens captures. `links`: what packets begin with, by port.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub(super) fn open(
        arrivals: &[Arrival],
        plan: &PacketPlan,
        links: &[Link],
        args: &ReplayArgs,
    ) -> Result<Self, Fault> {
        let open = |Arrival { port, file }: &Arrival| {
            let (link, place) = (links[usize::from(*port)], QueueId { port: *port, queue: 0 });
            let source = FileSource::open(file.as_ref(), link, place, Pace::Full);
            let mut source = source.map_err(|error| refused(&error))?;
            if args.trust_checksums {
                source.trust_checksums();
            }
            if let (Link::Ethernet, Some(other)) =
                (link, source.link_type().filter(|of| *of != LinkType::ETHERNET))
            {
                let name = &plan.ports[usize::from(*port)];
                stderr::line(format_args!(
                    "weft: {file} is of {other}: at port `{name}` its packets have an Ethernet header with \
                     addresses of zeros"
                ));
            }
            Ok(Input { file: file.clone(), port: *port, source, ahead: VecDeque::new(), n: 0, broken: None })
        };
        let all = arrivals.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { all, speed: args.speed, begin: None })
    }

    /// A pool with room for what a node has on its way, and for what is read ahead.
    pub(super) fn pool(&self) -> Pool {
        let (own, ahead) = (PoolConfig::default(), (BATCH_MAX * self.all.len()) as u32);
        Pool::for_captures(PoolConfig { small: own.small + ahead, large: own.large + ahead })
    }

    /// The files, in the order of the options.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|input| input.file.as_str())
    }

    /// The ports at which something arrives.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.all.iter().map(|input| input.port)
    }

    /// Puts the next packets of all captures into `out`, at most `n` and a batch. Each says at which port it arrived.
    /// Where there is none, all have been, or the next is still to come at recorded speed.
    pub(super) fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, n: u64, now: Time) {
        let n = usize::try_from(n).unwrap_or(BATCH_MAX).min(BATCH_MAX);
        while out.len() < n {
            self.all.iter_mut().for_each(|input| input.read(pool));
            // Without a buffer for the next of one of them, nobody knows whose turn it is.
            if self.all.iter().any(|input| input.ahead.is_empty() && !input.source.is_finished()) {
                return;
            }
            let Some((at, nth)) = self.next() else { return };
            let due = self.due(at);
            if due.is_some_and(|due| due > now) {
                return;
            }
            let input = &mut self.all[nth];
            let mut frame = input.ahead.pop_front().expect("it is the next");
            input.n += 1;
            if self.speed == Speed::Recorded {
                self.begin.get_or_insert((at, now));
                frame.meta.arrived = now;
            }
            out.push(frame);
        }
    }

    /// When the next packet is due, at recorded speed.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due(self.next()?.0)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.all.iter().all(|input| input.ahead.is_empty() && input.source.is_finished())
    }

    /// Bytes that were read, and how many there are where that is known.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        let parts = self.all.iter().map(|input| input.source.progress());
        parts.fold((0, Some(0)), |(n, all), (more, of)| (n + more, all.zip(of).map(|(all, of)| all + of)))
    }

    /// What came of each, and whether one is at fault. What is whole was processed, so that one that is merely cut
    /// short is not: a line says so.
    pub(super) fn close(self, plan: &PacketPlan) -> (Vec<InputReport>, Result<(), Fault>) {
        let (mut reports, mut ended) = (Vec::new(), Ok(()));
        for mut input in self.all {
            input.hint_at_offloads();
            if let Err(fault) = input.fault() {
                // Whoever calls says what is at fault first.
                match ended {
                    Ok(()) => ended = Err(fault),
                    Err(_) => stderr::print(&fault.text()),
                }
            }
            reports.push(InputReport {
                port: plan.ports[usize::from(input.port)].clone(),
                packets: input.n,
                refused: input.source.counters().refused_in,
                truncated: input.source.truncated(),
                broken: input
                    .broken
                    .map(|error| fault_of(&error).map_or(error.to_string(), |of| of.to_string())),
                file: input.file,
            });
        }
        (reports, ended)
    }

    /// When the next packet was captured, and of which capture it is: of those of one time the first.
    fn next(&self) -> Option<(Time, usize)> {
        let heads = self.all.iter().enumerate();
        heads.filter_map(|(nth, input)| Some((input.ahead.front()?.meta.arrived, nth))).min()
    }

    /// When what was captured then is due.
    fn due(&self, at: Time) -> Option<Time> {
        let (captured, given) = self.begin?;
        Some(given + (at - captured))
    }
}

impl Input {
    /// Reads on where nothing is left.
    fn read(&mut self, pool: &mut Pool) {
        if !self.ahead.is_empty() || self.source.is_finished() {
            return;
        }
        let mut frames = Vec::new();
        // At full pace a capture does not ask what time it is.
        match self.source.receive(pool, &mut frames, Time::default()) {
            Ok(_) => self.ahead.extend(frames),
            Err(error) => self.broken = Some(error),
        }
    }

    /// Says what would help where a device was still to do something to many packets.
    fn hint_at_offloads(&self) {
        let UnfinishedCounts { checksums, lengths, packets } = self.source.unfinished();
        if packets * HINT_FROM < self.n.max(1) {
            return;
        }
        let all = grouped(self.n);
        let what = match (checksums, lengths) {
            (0, n) => format!("{} of {all} packets have a length of 0", grouped(n)),
            (n, 0) => format!("{} of {all} packets have a checksum", grouped(n)),
            (n, m) => {
                format!("{} of {all} packets have a checksum, and {} a length of 0,", grouped(n), grouped(m))
            }
        };
        stderr::line(format_args!(
            "weft: {}: {what} that a device was still to fill in: --trust-checksums does so",
            self.file
        ));
    }

    /// Whether that it ended before its end is a failure.
    fn fault(&self) -> Result<(), Fault> {
        let Self { file, n, .. } = self;
        let Some(error) = &self.broken else { return Ok(()) };
        match fault_of(error) {
            Some(fault) if matches!(fault.fault, capture::Fault::Cut { .. }) => {
                stderr::line(format_args!("weft: {file}: {fault}; the {n} in front of that were processed"));
                Ok(())
            }
            Some(fault) => Err(Fault::Input(format!("{file}: {fault}"))),
            None => Err(Fault::environment(format!("cannot read {file}: {error}"))),
        }
    }
}

/// A capture that cannot be opened is at fault itself if it was there.
fn refused(error: &OpenError) -> Fault {
    match fault_of(&error.error) {
        Some(_) => Fault::Input(error.to_string()),
        None if error.error.kind() == io::ErrorKind::Unsupported => Fault::Input(error.to_string()),
        None => Fault::environment(error),
    }
}

/// What is wrong with the capture, if that is why reading it failed.
fn fault_of(error: &io::Error) -> Option<&capture::ReadError> {
    error.get_ref()?.downcast_ref()
}
