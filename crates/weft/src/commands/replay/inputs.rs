//! Merges the captures of a replay into one stream, in order of time.

use super::choice::Arrival;
use super::report::InputReport;
use crate::cli::{ReplayArgs, Speed};
use crate::fault::Fault;
use crate::stderr;
use std::collections::VecDeque;
use std::io;
use weft_control::show::grouped;
use weft_core::Time;
use weft_core::frame::{Frame, Pool, PoolConfig};
use weft_engine::packet::plan::PacketPlan;
use weft_engine::packet::port::Pace;
use weft_io::packet::file::{FileSource, UnfinishedCounts};
use weft_io::packet::{BATCH_MAX, Device as _, Link, OpenError, QueueId};
use weft_proto::capture::{self, LinkType};

/// The hint about offloads is printed if at least one of this many packets needs it.
const HINT_FROM: u64 = 10;
/// The maximum number of captures in a replay.
pub(super) const INPUTS_MAX: usize = 64;

/// The captures, read together.
pub(super) struct Inputs {
    all: Vec<Input>,
    speed: Speed,
    /// The capture time of the first packet, and the time of its arrival.
    begin: Option<(Time, Time)>,
}

/// A capture with a batch of packets read ahead: the time of its next packet decides which capture is next.
struct Input {
    file: String,
    port: u16,
    source: FileSource,
    ahead: VecDeque<Frame>,
    /// The number of packets so far.
    n: u64,
    /// The error that ended it early.
    broken: Option<io::Error>,
}

impl Inputs {
    /// Opens captures. `links` are the link types, by port.
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

    /// A pool with room for a node's packets, and for the packets read ahead.
    pub(super) fn pool(&self) -> Pool {
        let (own, ahead) = (PoolConfig::default(), (BATCH_MAX * self.all.len()) as u32);
        Pool::for_captures(PoolConfig { small: own.small + ahead, large: own.large + ahead })
    }

    /// The files, in the order of the options.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|input| input.file.as_str())
    }

    /// The ports of arrival.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.all.iter().map(|input| input.port)
    }

    /// Puts the next packets of all captures into `out`, at most `n` and at most a batch. Each frame has its port. If
    /// there are none, all captures have ended, or the next packet is not due yet at recorded speed.
    pub(super) fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, n: u64, now: Time) {
        let n = usize::try_from(n).unwrap_or(BATCH_MAX).min(BATCH_MAX);
        while out.len() < n {
            self.all.iter_mut().for_each(|input| input.read(pool));
            // The order is unknown until there is a buffer for the next packet of each capture.
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

    /// The due time of the next packet, at recorded speed.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due(self.next()?.0)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.all.iter().all(|input| input.ahead.is_empty() && input.source.is_finished())
    }

    /// Bytes read, and the total if it is known.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        let parts = self.all.iter().map(|input| input.source.progress());
        parts.fold((0, Some(0)), |(n, all), (more, of)| (n + more, all.zip(of).map(|(all, of)| all + of)))
    }

    /// The outcome of each capture, and a fault if one is broken. A capture that is merely truncated is no fault, since
    /// its whole packets were processed; a line says so.
    pub(super) fn close(self, plan: &PacketPlan) -> (Vec<InputReport>, Result<(), Fault>) {
        let (mut reports, mut ended) = (Vec::new(), Ok(()));
        for mut input in self.all {
            input.hint_at_offloads();
            if let Err(fault) = input.fault() {
                // The caller reports the fault itself.
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

    /// The capture time of the next packet, and its capture. At equal times the first capture wins.
    fn next(&self) -> Option<(Time, usize)> {
        let heads = self.all.iter().enumerate();
        heads.filter_map(|(nth, input)| Some((input.ahead.front()?.meta.arrived, nth))).min()
    }

    /// The due time of a packet that was captured at `at`.
    fn due(&self, at: Time) -> Option<Time> {
        let (captured, given) = self.begin?;
        Some(given + (at - captured))
    }
}

impl Input {
    /// Reads more packets if none are left.
    fn read(&mut self, pool: &mut Pool) {
        if !self.ahead.is_empty() || self.source.is_finished() {
            return;
        }
        let mut frames = Vec::new();
        // At full speed the source ignores the time.
        match self.source.receive(pool, &mut frames, Time::default()) {
            Ok(_) => self.ahead.extend(frames),
            Err(error) => self.broken = Some(error),
        }
    }

    /// Prints a hint if many packets still need the work of a device.
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

    /// Fails if the capture is malformed or cannot be read. A truncated one only gives a warning.
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

/// A capture that exists but cannot be opened is itself at fault.
fn refused(error: &OpenError) -> Fault {
    match fault_of(&error.error) {
        Some(_) => Fault::Input(error.to_string()),
        None if error.error.kind() == io::ErrorKind::Unsupported => Fault::Input(error.to_string()),
        None => Fault::environment(error),
    }
}

/// The error in the capture, if that made the read fail.
fn fault_of(error: &io::Error) -> Option<&capture::ReadError> {
    error.get_ref()?.downcast_ref()
}
