//! `weft generate`: generates random packets of a program's wire formats, and parses them again as a test.

use super::replay::output::Capture;
use crate::cli::{GenerateArgs, Output};
use crate::fault::Fault;
use crate::machine::check_files;
use crate::progress::Progress;
use crate::source;
use crate::source::require;
use crate::{stderr, stdout};
use serde_json::{Value, json};
use std::time::Instant;
use weft_control::show::{Align, Table};
use weft_control::show::{count, grouped};
use weft_core::Time;
use weft_core::rng::Rng;
use weft_core::wire::{Header, Malformed, Protocol, ProtocolId, build, generate, read};
use weft_proto::capture::{LinkType, Packet};

/// The default first protocol.
const FIRST: &str = "ethernet";
/// The number of failed draws of header stacks in a row after which the command gives up.
const TRIES_MAX: u64 = 1_000_000;
/// The number of capture bytes that are buffered.
const BUFFER_BYTES: usize = 1 << 20;
/// The maximum number of reported differences, and of reported rules.
const SHOWN_MAX: usize = 10;

/// Runs `weft generate`.
pub(crate) fn run(args: &GenerateArgs) -> Result<(), Fault> {
    require(&args.file)?;
    let checked = check_files(&args.file, &mut source::on_disk());
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    let Some(network) = checked.network() else { return Err(Fault::reported(checked.at_fault)) };
    let protocols = &network.protocols[..];
    let first =
        named(protocols, args.first.as_deref().unwrap_or(FIRST)).map_err(|fault| match args.first {
            Some(_) => fault,
            None => fault.with_help("say with --first what packets begin with"),
        })?;
    let wanted = args.with.iter().map(|name| named(protocols, name)).collect::<Result<Vec<_>, _>>()?;
    if let Some(beyond) = wanted.iter().find(|id| !leads_to(protocols, first, **id)) {
        let [first, beyond] = [first, *beyond].map(|id| &protocols[usize::from(id.0)].name);
        let what = format!("no packet that begins with `{first}` has a `{beyond}`");
        return Err(Fault::usage(what)
            .with_help("BIND says from where a protocol is found, and --first where to begin"));
    }
    let mut made = Generated::new(protocols, first, wanted, args.malformed);
    let mut capture = match &args.out {
        Some(path) => Some(Capture::with_interfaces(path.as_ref(), &[(made.link_type(), "")])?.0),
        None => None,
    };
    let (mut rng, mut progress) = (Rng::from_seed(args.seed), Progress::new(Instant::now()));
    while made.n < args.count {
        let frame = made.next(&mut rng)?;
        if let Some(capture) = &mut capture {
            // A microsecond apart: some tools take packets with equal times for one.
            let at = Time(made.n as i64 * 1_000);
            capture.write(&Packet { at, bytes: &frame, ..Packet::default() });
            capture.flush(BUFFER_BYTES)?;
        }
        progress.show(made.n, (made.n, Some(args.count)));
    }
    drop(progress);
    if let Some(capture) = &mut capture {
        capture.flush(0)?;
    }
    stdout::print(&match args.output {
        Output::Json => format!("{}\n", made.json()),
        Output::Table => made.table(),
    })?;
    match made.n_different {
        0 => Ok(()),
        n => Err(Fault::Input(format!("{} read in another way than built", count(n, "packet")))),
    }
}

/// Finds the protocol of this name. Fails if the program has none.
fn named(protocols: &[Protocol], name: &str) -> Result<ProtocolId, Fault> {
    let found = protocols.iter().position(|protocol| protocol.name == name);
    found.map(|at| ProtocolId(at as u16)).ok_or_else(|| {
        let names: Vec<_> = protocols.iter().map(|protocol| format!("`{}`", protocol.name)).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Fault::usage(format!("the program has no protocol `{name}`; it has {known}"))
    })
}

/// Whether a packet that starts with `first` can contain `wanted`.
fn leads_to(protocols: &[Protocol], first: ProtocolId, wanted: ProtocolId) -> bool {
    let (mut seen, mut left) = (vec![false; protocols.len()], vec![first]);
    while let Some(id) = left.pop() {
        if !core::mem::replace(&mut seen[usize::from(id.0)], true) {
            left.extend(protocols[usize::from(id.0)].next.iter().map(|next| next.to));
        }
    }
    seen[usize::from(wanted.0)]
}

/// The packets so far.
struct Generated<'p> {
    protocols: &'p [Protocol],
    first: ProtocolId,
    /// Layers that each packet must have.
    wanted: Vec<ProtocolId>,
    /// Keeps packets that break a rule; otherwise they are drawn again.
    keeps_malformed: bool,
    n: u64,
    bytes: u64,
    /// By protocol: the number of packets with such a layer.
    layers: Vec<u64>,
    /// Rules that random values break, and the number of such packets.
    malformed: Vec<(Malformed, u64)>,
    n_different: u64,
    /// The first differences.
    different: Vec<String>,
}

impl<'p> Generated<'p> {
    fn new(
        protocols: &'p [Protocol],
        first: ProtocolId,
        wanted: Vec<ProtocolId>,
        keeps_malformed: bool,
    ) -> Self {
        Self {
            protocols,
            first,
            wanted,
            keeps_malformed,
            n: 0,
            bytes: 0,
            layers: vec![0; protocols.len()],
            malformed: Vec::new(),
            n_different: 0,
            different: Vec::new(),
        }
    }

    /// Draws a packet.
    ///
    /// # Errors
    /// There seems to be none with all wanted layers.
    fn next(&mut self, rng: &mut Rng) -> Result<Vec<u8>, Fault> {
        for _ in 0..TRIES_MAX {
            let (mut headers, payload) = generate::headers(self.protocols, self.first, rng);
            let has = |wanted: &ProtocolId| headers.iter().any(|header| header.protocol == *wanted);
            if !self.wanted.iter().all(has) {
                continue;
            }
            if !self.keeps_malformed {
                generate::end(self.protocols, &mut headers, rng);
            }
            // The drawn headers may not fit together.
            let Ok(frame) = build(self.protocols, &headers, &payload) else { continue };
            if self.count(&headers, &frame) {
                return Ok(frame);
            }
        }
        let names: Vec<_> = self.wanted.iter().map(|id| format!("`{}`", self.name(*id))).collect();
        let first = self.name(self.first);
        Err(Fault::usage(match names.is_empty() {
            true => format!("no packet that begins with `{first}` can be built"),
            false => format!(
                "of {} stacks of headers that begin with `{first}` none has {}",
                grouped(TRIES_MAX),
                names.join(" and ")
            ),
        })
        .with_help(match self.malformed.iter().max_by_key(|(_, n)| *n) {
            Some((Malformed { protocol, what, line }, n)) => format!(
                "{} broke a rule of `{}`: {what} (line {line}); --malformed keeps them",
                grouped(*n),
                self.name(*protocol)
            ),
            None => "--first nearer to it, or fewer layers at once".to_owned(),
        }))
    }

    /// Whether the packet is wanted; counts it if it is.
    fn count(&mut self, headers: &[Header], frame: &[u8]) -> bool {
        let reading = read(self.protocols, &[self.first], frame);
        if let Some(malformed) = &reading.malformed {
            match self.malformed.iter_mut().find(|(known, _)| known == malformed) {
                Some((_, n)) => *n += 1,
                None => self.malformed.push((malformed.clone(), 1)),
            }
            if !self.keeps_malformed {
                return false;
            }
        }
        if !self.keeps_malformed && !generate::fragments_are_possible(self.protocols, &reading) {
            return false;
        }
        self.n += 1;
        self.bytes += frame.len() as u64;
        for (at, layer) in headers.iter().enumerate() {
            let is_first = headers[..at].iter().all(|known| known.protocol != layer.protocol);
            self.layers[usize::from(layer.protocol.0)] += u64::from(is_first);
        }
        if let Some(why) = generate::difference(self.protocols, headers, &reading) {
            self.n_different += 1;
            if self.different.len() < SHOWN_MAX {
                self.different.push(format!("packet {}: {why}", self.n));
            }
        }
        true
    }

    fn name(&self, protocol: ProtocolId) -> &'p str {
        &self.protocols[usize::from(protocol.0)].name
    }

    /// The link type for other tools; 147 is reserved for private use.
    fn link_type(&self) -> LinkType {
        match self.name(self.first) {
            FIRST => LinkType::ETHERNET,
            "ipv4" | "ipv6" => LinkType::RAW,
            _ => LinkType(147),
        }
    }

    /// Layers, most frequent first.
    fn layers(&self) -> Vec<(&'p str, u64)> {
        let all = self.protocols.iter().map(|protocol| &*protocol.name).zip(self.layers.iter().copied());
        let mut all: Vec<_> = all.filter(|(_, n)| *n > 0).collect();
        all.sort_by_key(|(_, n)| core::cmp::Reverse(*n));
        all
    }

    /// The result as text: packets by layer, and malformed ones.
    fn table(&self) -> String {
        let mut table = Table::new(&[("layer", Align::Left), ("packets", Align::Right)]);
        for (name, n) in self.layers() {
            table.row(vec![name.to_owned(), grouped(n)]);
        }
        let mut out = table.render();
        let malformed = self.malformed.iter().filter(|_| self.keeps_malformed);
        let n_malformed: u64 = malformed.map(|(_, n)| n).sum();
        out += &format!(
            "\n{} of {} bytes; {} read as built\n",
            count(self.n, "packet"),
            grouped(self.bytes),
            grouped(self.n - self.n_different - n_malformed)
        );
        for (Malformed { protocol, what, line }, n) in self.malformed.iter().take(SHOWN_MAX) {
            let name = self.name(*protocol);
            let malformed = if self.keeps_malformed { "malformed" } else { "left out as malformed" };
            out += &format!("{} {malformed}: `{name}`, {what} (line {line})\n", grouped(*n));
        }
        for different in &self.different {
            out += &format!("{different}\n");
        }
        out
    }

    /// The result as JSON.
    fn json(&self) -> Value {
        let layer = |(name, n): (&str, u64)| json!({ "protocol": name, "packets": n });
        let malformed = |(of, n): &(Malformed, u64)| {
            let Malformed { protocol, what, line } = of;
            json!({ "protocol": self.name(*protocol), "what": what, "line": line, "packets": n })
        };
        json!({
            "packets": self.n,
            "bytes": self.bytes,
            "layers": self.layers().into_iter().map(layer).collect::<Vec<_>>(),
            "malformed": self.malformed.iter().map(malformed).collect::<Vec<_>>(),
            "different": { "packets": self.n_different, "first": self.different },
        })
    }
}
