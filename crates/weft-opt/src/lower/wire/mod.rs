//! From wire formats to the parser of a chain on frames: one function that looks at no more layers than the chain asks
//! about, and at each of them once.
//!
//! Each layer that may be met becomes a stretch of the function (`header`), and the conditions of its definition
//! branches to the next (`graph`). Layers that may follow each other in a circle, as tags do, are entered by way of one
//! block that counts them. What a chain changes is written back by [`FieldWrite`](weft_ir::program::FieldWrite)s (`stores`).

mod graph;
mod header;
mod stores;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_core::inputs::InputSet;
use weft_core::limits::INPUTS_MAX;
use weft_core::limits::SEGMENT_STEPS_MAX;
use weft_core::types::Type;
use weft_core::wire::{
    CARRIED_MAX, FieldId, FieldRef, Formats, LAYERS_MAX, LayerRef, Protocol, ProtocolId, Width,
};
use weft_ir::ir::{BlockId, Endian, InputId, IntCmp, IntOp, Op, Terminator, Ty, Value};
use weft_ir::program::{Carried, Check, Element, FieldWrite, Frames, Input, InputLocation, overlaps_at};

use self::graph::{Graph, Node, Wanted, What};
use self::header::{Extent, Out};
pub(super) use self::stores::{leads_to, settable, unfit};
use weft_ir::passes;

/// Layers that a chain may ask about if they may come in a circle: those that were met are the bits of a word.
const MET_MAX: usize = 64;
/// Usual layers in a row that are read by code of their own.
const USUAL_MAX: usize = 4;
/// Bytes that may have been cut off a frame: more than any packet has.
const CUT_BYTES_MAX: i64 = 1 << 20;
/// The protocol of labels behind which fragments are known.
const LABELS: &str = "mpls";

/// What finds the frame inputs among `inputs`, in frames that begin with one of `roots`; whether these were cut as they
/// were captured, so that a packet may be shorter than it says. Adds inputs for checksums, and
/// for fragments in tunnels. `elements` are those of the chain. `behind` has a bit for each input at which one looks
/// that stands behind one that takes packets out of tunnels; then those that stand behind two such elements, and so on.
///
/// # Errors
/// What the chain cannot do.
pub(super) fn frames(
    protocols: &[Protocol],
    (roots, are_cut): (&[ProtocolId], bool),
    inputs: &mut Vec<Input>,
    elements: &[Element],
    behind: &[InputSet],
) -> Result<Frames, String> {
    let asked = mask(inputs, |_| true);
    let mut stores = stores::plan(protocols, inputs, elements)?;
    let (inherited, carried) = (inherited(protocols, inputs), carried(protocols, inputs, behind));
    stores.resize(inputs.len(), None);
    if inputs.len() > INPUTS_MAX {
        let n = inputs.len();
        return Err(format!(
            "it needs {n} inputs, some for fragments in tunnels, and {INPUTS_MAX} are the most"
        ));
    }
    let graph = Graph::new(protocols, roots, wanted(protocols, inputs, placed(&stores, &carried)));
    if graph.is_cyclic() && graph.wanted.len() > MET_MAX {
        let n = graph.wanted.len();
        return Err(format!(
            "it asks about {n} layers, and {MET_MAX} are the most where they may come in a circle"
        ));
    }
    let is_label = |(id, level): &Node| *level == 0 && protocols[usize::from(id.0)].name == LABELS;
    let has_labels = (!inherited.is_empty() || !carried.is_empty()) && graph.order.iter().any(is_label);
    let layers = graph.usual_layers(asked);
    let usual = graph.usual(&layers, asked);
    let mut parser = Parser {
        graph: &graph,
        out: Out::new("parse"),
        blocks: BTreeMap::new(),
        round: None,
        gate: None,
        usual: layers,
        copies: Vec::new(),
        entered: BTreeSet::new(),
    };
    parser.make(are_cut);
    let Out { b, mut checks, .. } = parser.out;
    let parser = b
        .finish()
        .ok_or_else(|| format!("its parser takes more than {SEGMENT_STEPS_MAX} steps once it is compiled"))?;
    let parser = passes::clean(parser);
    let follows = !inherited.is_empty() || !carried.is_empty();
    let overlaps = if follows { overlaps(protocols, &mut checks) } else { [None; 2] };
    let needs_formats =
        |input: &Input| matches!(input.place, InputLocation::Meta(meta) if meta.needs_formats());
    let formats = inputs
        .iter()
        .any(needs_formats)
        .then(|| Arc::new(Formats { protocols: protocols.to_vec(), roots: roots.to_vec() }));
    Ok(Frames {
        is_ip: false,
        has_labels,
        parser,
        checks,
        overlaps,
        field_writes: stores,
        inherited,
        carried,
        usual,
        formats,
    })
}

/// Adds what a fragment breaks that overlaps another, where it is said to be one: of IPv4, whose header says so itself,
/// and of IPv6, which has a header for it.
fn overlaps(protocols: &[Protocol], checks: &mut Vec<Check>) -> [Option<u32>; 2] {
    let mut overlaps = [None; 2];
    for protocol in protocols {
        let Some(said) = protocol.more_fragments() else { continue };
        let version = if matches!(protocol.begins(), Some((4, 4))) { 4 } else { 6 };
        let line = protocol.fields[usize::from(said.0)].line;
        let what = "overlaps another fragment, or ends where none may".to_owned();
        overlaps[overlaps_at(version)].get_or_insert_with(|| {
            checks.push(Check { protocol: protocol.name.clone(), what, line });
            checks.len() as u32 - 1
        });
    }
    overlaps
}

/// The inputs that a later fragment has from the first of its packet: those of the layer behind what is fragmented, if
/// no element takes that off, and of what a tunnel behind it carries, if no element takes anything off.
fn inherited(protocols: &[Protocol], inputs: &[Input]) -> InputSet {
    let are_moved = inputs.iter().any(|input| matches!(input.place, InputLocation::Layer(_)));
    let is_carried = |input: &Input| matches!(&input.place, InputLocation::Frame(field) if field.layer.level > 0 && !are_moved);
    with_last(mask(inputs, is_carried) | behind_fragmented(protocols, inputs, 0), inputs, 0)
}

/// With these inputs of a first fragment, columns that are of its last header on a level: that stands behind it as
/// well. For themselves no fragments are followed.
fn with_last(inherited: InputSet, inputs: &[Input], level: u8) -> InputSet {
    let is_last = |input: &Input| match &input.place {
        InputLocation::Frame(field) => field.last && field.layer.level == level,
        _ => false,
    };
    if inherited.is_empty() { inherited } else { inherited | mask(inputs, is_last) }
}

/// How fragments are known that tunnels carry, as far as the chain asks for what is behind them, there or when they
/// have been taken out; adds inputs for that.
fn carried(protocols: &[Protocol], inputs: &mut Vec<Input>, behind: &[InputSet]) -> Vec<Carried> {
    let [outside, inside] = [0, 1].map(|level| behind_fragmented(protocols, inputs, level));
    // How deep it lay when the frame came in.
    let taken_out = behind.iter().zip(1..).flat_map(|(looked_at, n)| {
        [(outside.intersects(*looked_at), n), (inside.intersects(*looked_at), n + 1)]
    });
    let asked = [(!inside.is_empty(), 1)].into_iter().chain(taken_out);
    let depth = asked.filter_map(|(is_asked, depth)| is_asked.then_some(depth)).max().unwrap_or(0);
    let carried = (0..depth.min(CARRIED_MAX)).map(|at| {
        let (packet, tunnel) = carried_in(protocols, inputs, at as u8);
        let inherited = if at == 0 { with_last(inside, inputs, 1) } else { InputSet::EMPTY };
        Carried { packet, tunnel, inherited }
    });
    carried.collect()
}

/// The inputs for the packet that a tunnel on this level carries, and for the number of the tunnel.
fn carried_in(protocols: &[Protocol], inputs: &mut Vec<Input>, level: u8) -> (u16, Option<u16>) {
    let all = || (0..protocols.len()).map(|at| ProtocolId(at as u16));
    let of = |id: ProtocolId| &protocols[usize::from(id.0)];
    let is_fragmented = |id: ProtocolId| of(id).more_fragments().is_some();
    // IPv4 has fragments itself, IPv6 by a header behind it; both begin with their version.
    let is_packet = |id: &ProtocolId| {
        let mut behind = of(*id).next.iter().filter(|next| !next.inner).map(|next| next.to);
        matches!(of(*id).begins(), Some((4, 4 | 6))) && (is_fragmented(*id) || behind.any(is_fragmented))
    };
    let packet = LayerRef { level: level + 1, protocols: all().filter(is_packet).collect() };
    let packet = input_for(inputs, "carried packet", Type::Bool, FieldRef::presence(packet));
    let number = |id: ProtocolId| {
        let (owner, field) = *of(id).session_key.first()?;
        let is_number = matches!(of(id).fields[usize::from(field.0)].width, Width::Bits { .. });
        (owner == id && is_number && of(id).next.iter().any(|next| next.inner)).then_some((id, field))
    };
    let (tunnels, fields): (Vec<_>, Vec<_>) = all().filter_map(number).unzip();
    let tunnel = (!tunnels.is_empty()).then(|| {
        let layer = LayerRef { level, protocols: tunnels };
        input_for(inputs, "tunnel", Type::Uint(64), FieldRef::first(layer, fields))
    });
    (packet, tunnel)
}

/// The input that is this field: one that there is, or a new one that no element sees.
fn input_for(inputs: &mut Vec<Input>, name: &str, ty: Type, field: FieldRef) -> u16 {
    let place = InputLocation::Frame(field);
    let known = inputs.iter().position(|input| input.place == place);
    known.unwrap_or_else(|| {
        inputs.push(Input { name: name.to_owned(), ty, nullable: true, place, written: false });
        inputs.len() - 1
    }) as u16
}

/// The inputs of the layers on a level that stand directly behind one that has fragments, if no element takes them off.
fn behind_fragmented(protocols: &[Protocol], inputs: &[Input], level: u8) -> InputSet {
    let fragmented = protocols.iter().filter(|protocol| protocol.more_fragments().is_some());
    let behind = fragmented.flat_map(|protocol| &protocol.next).filter(|next| !next.inner);
    let behind: BTreeSet<ProtocolId> = behind.map(|next| next.to).collect();
    let moved: BTreeSet<ProtocolId> = inputs
        .iter()
        .filter_map(|input| {
            if let InputLocation::Layer(layer) = &input.place { Some(&layer.protocols) } else { None }
        })
        .flatten()
        .copied()
        .collect();
    mask(inputs, |input| match &input.place {
        InputLocation::Frame(field) => {
            let all = &field.layer.protocols;
            field.layer.level == level && all.iter().all(|of| behind.contains(of) && !moved.contains(of))
        }
        _ => false,
    })
}

/// Those inputs of which something holds.
fn mask(inputs: &[Input], holds: impl Fn(&Input) -> bool) -> InputSet {
    inputs.iter().enumerate().filter(|(_, input)| holds(input)).map(|(at, _)| at).collect()
}

/// The inputs of which somebody asks where they lie, though they are no runs of bytes: who writes them, who keeps a
/// checksum, and who looks for fragments in tunnels.
fn placed(stores: &[Option<FieldWrite>], carried: &[Carried]) -> InputSet {
    let written = stores.iter().enumerate().filter(|(_, store)| store.is_some()).map(|(at, _)| at as u16);
    let sums = stores.iter().flatten().flat_map(|store| &store.sums).map(|sum| sum.input);
    let packets = carried.iter().map(|carried| carried.packet);
    written.chain(sums).chain(packets).collect()
}

/// What is wanted of each layer.
fn wanted(protocols: &[Protocol], inputs: &[Input], placed: InputSet) -> BTreeMap<Node, Vec<Wanted>> {
    let mut wanted: BTreeMap<Node, Vec<Wanted>> = BTreeMap::new();
    for (at, input) in inputs.iter().enumerate() {
        let (layer, fields, last) = match &input.place {
            InputLocation::Frame(field) => (&field.layer, Some(&field.fields), field.last),
            InputLocation::Layer(layer) => (layer, None, false),
            _ => continue,
        };
        for (nth, protocol) in layer.protocols.iter().enumerate() {
            let field = |fields: &Option<Vec<FieldId>>| fields.as_ref()?.get(nth).copied();
            let what = match fields.map(field) {
                None => What::Header,
                Some(None) => What::Presence,
                Some(Some(field)) => What::Field(field),
            };
            let is_one_word = match what {
                What::Header => false,
                What::Presence => true,
                What::Field(FieldId(id)) => {
                    let fields = &protocols[usize::from(protocol.0)].fields;
                    matches!(fields[usize::from(id)].width, Width::Bits { .. })
                }
            };
            let (input, place) = (InputId(at as u16), !is_one_word || placed.contains(at));
            wanted.entry((*protocol, layer.level)).or_default().push(Wanted { input, what, last, place });
        }
    }
    wanted
}

/// A parser that is being made.
struct Parser<'g, 'n> {
    graph: &'g Graph<'n>,
    out: Out,
    /// Where each layer is read. Parameters: where it begins and ends and, if layers may go in a circle, how many have
    /// been met and which of them.
    blocks: BTreeMap<Node, BlockId>,
    /// Where layers are counted. Parameters: which layer, by its index in the order, and those of its block.
    round: Option<BlockId>,
    /// By which all ways from usual layers lead there, with the same parameters. What a compiler makes in front of a
    /// loop is made there, and not for usual frames.
    gate: Option<BlockId>,
    /// The layers that most frames have, which are read a second time in front of all others, each for the ways to it:
    /// where they lie is known there.
    usual: Vec<Vec<Node>>,
    /// Those of them that are still to be read.
    copies: Vec<UsualLayer>,
    /// Layers to which ways lead from those, beside those that are counted.
    entered: BTreeSet<Node>,
}

/// A layer that is read by code of its own, for frames that came to it by one way.
struct UsualLayer {
    block: BlockId,
    node: Node,
    way: Way,
    /// How many layers are in front of it.
    nth: usize,
}

/// What is passed from layer to layer.
#[derive(Clone, Debug)]
struct Way {
    extent: Extent,
    /// If layers may stand behind a first fragment: how many bytes they may be longer than what is there.
    slack: Option<Value>,
    /// If layers may go in a circle: how many have been met, and a bit for each that has been.
    met: Option<(Value, Value)>,
}

impl Way {
    fn args(&self) -> Vec<Value> {
        let met = self.met.iter().flat_map(|(n, which)| [*n, *which]);
        [self.extent.at, self.extent.end].into_iter().chain(self.slack).chain(met).collect()
    }
}

impl Parser<'_, '_> {
    fn make(&mut self, are_cut: bool) {
        let (at, end) = (self.out.b.int(0), self.out.b.get(Op::FrameLen, Ty::Int));
        let is_cyclic = self.graph.is_cyclic();
        let slack = if are_cut { self.out.b.int(CUT_BYTES_MAX) } else { at };
        let slack = self.graph.has_fragments.then_some(slack);
        let start = Way { extent: Extent { at, end }, slack, met: is_cyclic.then_some((at, at)) };
        for node in &self.graph.order {
            let block = self.out.b.block();
            self.blocks.insert(*node, block);
        }
        if is_cyclic {
            self.round = Some(self.out.b.scan_block(u64::from(LAYERS_MAX) + 1));
            self.gate = Some(self.out.b.block());
        }
        self.enter(&start);
        while let Some(UsualLayer { block, node, way, nth }) = self.copies.pop() {
            self.out.b.switch(block);
            self.read(node, way, Some(nth + 1));
        }
        self.count();
        for node in self.graph.order.clone() {
            self.layer(node);
        }
    }

    /// The first layer of the frame: the only root, or the one that the first bits name.
    fn enter(&mut self, way: &Way) {
        let roots = self.graph.roots.clone();
        let Some((last, others)) = roots.split_last() else {
            return self.out.b.end(Terminator::Forward);
        };
        for root in others {
            let is_it = self.begins_with(*root, way.extent.at);
            let other = self.out.b.block();
            let (block, args) = self.usual_way_to(*root, way, Some(0));
            self.out.b.branch_with(is_it, (block, args), (other, Vec::new()));
            self.out.b.switch(other);
        }
        let (block, args) = self.usual_way_to(*last, way, Some(0));
        self.out.b.jump(block, args);
    }

    /// Whether a frame begins with this protocol, which begins with a constant that tells it from others (the version
    /// of IP).
    fn begins_with(&mut self, root: Node, at: Value) -> Value {
        let Some((n, wanted)) = self.graph.protocols[usize::from(root.0.0)].begins() else {
            return self.out.b.bool(true);
        };
        let held = stores::container(0, n);
        let number = self.out.b.get(Op::FrameGet(at, held.bytes, Endian::Big), Ty::Int);
        let (shift, wanted) = (self.out.b.int(i64::from(held.shift)), self.out.b.int(wanted as i64));
        let number = self.out.b.int_binary(IntOp::Shr, number, shift);
        self.out.b.int_compare(IntCmp::Eq, number, wanted)
    }

    /// As [`Parser::way_to`]; a layer that is usual as the `nth` is read by code of its own.
    fn usual_way_to(&mut self, to: Node, way: &Way, nth: Option<usize>) -> (BlockId, Vec<Value>) {
        let is_payload = self.graph.protocols[usize::from(to.0.0)].malformed_is_payload;
        let Some(nth) = nth else { return self.way_to(to, way, self.round) };
        if !self.is_usual(to, nth) || is_payload {
            return match self.is_counted(to) {
                true => self.way_to(to, way, self.gate),
                false => self.way_in(to, way),
            };
        }
        let (block, mut way) = (self.out.b.block(), way.clone());
        if let Some((n, _)) = &mut way.met
            && self.is_counted(to)
        {
            // No way is as long as too many.
            let one = self.out.b.int(1);
            *n = self.out.b.int_binary(IntOp::Add, *n, one);
        }
        self.copies.push(UsualLayer { block, node: to, way, nth });
        (block, Vec::new())
    }

    /// Where a way from usual layers to another begins, which is not counted again: where layers may go in a circle,
    /// all that may be met again stands behind the block that counts.
    fn way_in(&mut self, to: Node, way: &Way) -> (BlockId, Vec<Value>) {
        let (Some(gate), Some((n, met))) = (self.gate, way.met) else {
            return (self.blocks[&to], way.args());
        };
        self.entered.insert(to);
        let (which, one) = (self.out.b.int(self.index(to)), self.out.b.int(1));
        let n = self.out.b.int_binary(IntOp::Sub, n, one);
        let way = Way { met: Some((n, met)), ..way.clone() };
        (gate, [which].into_iter().chain(way.args()).collect())
    }

    /// Whether most frames have a layer as the `nth`.
    fn is_usual(&self, layer: Node, nth: usize) -> bool {
        nth < USUAL_MAX && self.usual.get(nth).is_some_and(|alike| alike.contains(&layer))
    }

    /// Where the way to a layer begins: its block, or, if it may be met again, the one that counts or leads there.
    fn way_to(&mut self, to: Node, way: &Way, count: Option<BlockId>) -> (BlockId, Vec<Value>) {
        match count {
            Some(round) if self.is_counted(to) => {
                let which = self.out.b.int(self.index(to));
                (round, [which].into_iter().chain(way.args()).collect())
            }
            _ => (self.blocks[&to], way.args()),
        }
    }

    /// Whether a layer may be met again.
    fn is_counted(&self, layer: Node) -> bool {
        self.graph.backs.iter().any(|(_, back)| *back == layer) || self.graph.roots.contains(&layer)
    }

    fn index(&self, node: Node) -> i64 {
        self.graph.order.iter().position(|known| *known == node).unwrap_or(0) as i64
    }

    /// The block through which all layers go that may be met again.
    fn count(&mut self) {
        let Some((round, gate)) = self.round.zip(self.gate) else { return };
        let n_params = 5 + usize::from(self.graph.has_fragments);
        let args = (0..n_params).map(|_| self.out.b.param(gate, Ty::Int)).collect();
        self.out.b.switch(gate);
        self.out.b.jump(round, args);
        let [which, at, end] = [(); 3].map(|()| self.out.b.param(round, Ty::Int));
        let slack = self.graph.has_fragments.then(|| self.out.b.param(round, Ty::Int));
        let [n, met] = [(); 2].map(|()| self.out.b.param(round, Ty::Int));
        self.out.b.switch(round);
        let max = self.out.b.int(i64::from(LAYERS_MAX));
        let over = self.out.b.int_compare(IntCmp::ULe, max, n);
        let [too_many, goes_on] = [(); 2].map(|()| self.out.b.block());
        self.out.b.branch(over, too_many, goes_on);
        self.out.b.switch(goes_on);
        let one = self.out.b.int(1);
        let n = self.out.b.int_binary(IntOp::Add, n, one);
        let way = Way { extent: Extent { at, end }, slack, met: Some((n, met)) };
        let backs = self.graph.backs.iter().map(|(_, to)| *to);
        let mut targets: Vec<Node> = self.graph.roots.iter().copied().chain(backs).collect();
        targets.sort_unstable();
        targets.dedup();
        let entered = self.entered.iter().copied().filter(|to| !targets.contains(to));
        let entries: Vec<Node> = targets.iter().copied().chain(entered).collect();
        let blocks = entries.iter().map(|target| (self.blocks[target], way.args())).collect();
        self.choose(which, &entries, blocks);
        self.out.b.switch(too_many);
        let ends = targets.iter().map(|target| (self.end_of_too_many(*target), Vec::new())).collect();
        self.choose(which, &targets, ends);
    }

    /// Goes to the block of the layer that is meant.
    fn choose(&mut self, which: Value, layers: &[Node], mut blocks: Vec<(BlockId, Vec<Value>)>) {
        let last = blocks.pop();
        for (layer, (block, args)) in layers.iter().zip(blocks) {
            let index = self.out.b.int(self.index(*layer));
            let is_it = self.out.b.int_compare(IntCmp::Eq, which, index);
            let other = self.out.b.block();
            self.out.b.branch_with(is_it, (block, args), (other, Vec::new()));
            self.out.b.switch(other);
        }
        last.into_iter().for_each(|(block, args)| self.out.b.jump(block, args));
    }

    /// Where the way ends in front of a layer that would be one too many.
    fn end_of_too_many(&mut self, layer: Node) -> BlockId {
        let protocol = &self.graph.protocols[usize::from(layer.0.0)];
        match protocol.malformed_is_payload {
            true => self.out.b.block_that(Terminator::Forward),
            false => {
                let what = format!("more than {LAYERS_MAX} layers in a row");
                self.out.refusal(&protocol.name, &what, protocol.line)
            }
        }
    }

    /// One layer, wherever it lies.
    fn layer(&mut self, node: Node) {
        let block = self.blocks[&node];
        let [at, end] = [(); 2].map(|()| self.out.b.param(block, Ty::Int));
        let slack = self.graph.has_fragments.then(|| self.out.b.param(block, Ty::Int));
        let met = self.round.is_some().then(|| {
            let [n, which] = [(); 2].map(|()| self.out.b.param(block, Ty::Int));
            (n, which)
        });
        self.out.b.switch(block);
        self.read(node, Way { extent: Extent { at, end }, slack, met }, None);
    }

    /// The header of a layer, and the way to the next: to a usual one where the layer stands in front of the `behind`th
    /// that may be.
    fn read(&mut self, node: Node, way: Way, behind: Option<usize>) {
        let graph = self.graph;
        let protocol = &graph.protocols[usize::from(node.0.0)];
        let wanted = graph.wanted.get(&node).map(Vec::as_slice).unwrap_or_default();
        let mut edges: Vec<(usize, Node)> = graph
            .edges(node)
            .map(|(next, to)| {
                (protocol.next.iter().position(|own| core::ptr::eq(own, next)).unwrap_or(0), to)
            })
            .collect();
        // No two of them hold, so that those may be asked first which most frames take: those that do not go in a
        // circle, and those behind which there is little.
        let is_usual = |to: Node| behind.is_some_and(|nth| self.is_usual(to, nth));
        edges.sort_by_key(|(_, to)| (!is_usual(*to), self.is_counted(*to), graph.edges(*to).count()));
        let goes_on = edges.iter().any(|(_, to)| is_usual(*to));
        let is_plain = behind.is_some() && (goes_on || protocol.more_fragments().is_some());
        let unusual = is_plain.then(|| self.way_in(node, &way));
        let next: Vec<usize> = edges.iter().map(|(at, _)| *at).collect();
        let Way { extent, slack, met } = way;
        let (first, met) = self.meet(node, met, wanted.iter().any(|wanted| !wanted.last));
        if protocol.malformed_is_payload {
            self.look_first(protocol, extent, slack);
        }
        let read = header::read(&mut self.out, protocol, extent, wanted, &next, (first, slack), unusual);
        self.out.payload = None;
        let way = Way { extent: read.payload, slack: read.slack, met };
        for ((at, to), condition) in edges.iter().zip(read.conditions) {
            let other = self.out.b.block();
            if protocol.next[*at].or_bytes {
                let look = self.out.b.block();
                self.out.b.branch(condition, look, other);
                self.out.b.switch(look);
                self.look_first(&graph.protocols[usize::from(to.0.0)], way.extent, way.slack);
                self.out.payload = None;
                let (block, args) = self.usual_way_to(*to, &way, behind);
                self.out.b.jump(block, args);
            } else {
                let (block, args) = self.usual_way_to(*to, &way, behind);
                self.out.b.branch_with(condition, (block, args), (other, Vec::new()));
            }
            self.out.b.switch(other);
        }
        self.out.b.end(Terminator::Forward);
    }

    /// Ends the way in front of a header that breaks a rule. Nothing is given of such a one, so it is looked at as a
    /// whole before it is read.
    fn look_first(&mut self, protocol: &Protocol, extent: Extent, slack: Option<Value>) {
        self.out.payload = Some(self.out.b.block_that(Terminator::Forward));
        header::read(&mut self.out, protocol, extent, &[], &[], (None, slack), None);
    }

    /// Whether a layer is met for the first time, if it may be met again and something is wanted of the first; and what
    /// is known of those that were met, with it.
    fn meet(
        &mut self,
        node: Node,
        met: Option<(Value, Value)>,
        is_wanted: bool,
    ) -> (Option<Value>, Option<(Value, Value)>) {
        let Some((n, which)) = met.filter(|_| is_wanted) else { return (None, met) };
        let nth = self.graph.wanted.range(..node).count();
        let bit = self.out.b.int(1 << nth);
        let zero = self.out.b.int(0);
        let seen = self.out.b.int_binary(IntOp::And, which, bit);
        let first = self.out.b.int_compare(IntCmp::Eq, seen, zero);
        let which = self.out.b.int_binary(IntOp::Or, which, bit);
        (Some(first), Some((n, which)))
    }
}
