//! Compiles wire formats to the parser of a chain on frames: one function that reads only the layers that the chain
//! needs, each of them once.
//!
//! Each possible layer becomes a section of the function (`header`), and the conditions of its definition become
//! branches to the next (`graph`). Layers that may form a cycle, such as tags, are entered through one block that
//! counts them. [`FieldWrite`]s write the changes of a chain back (`stores`).

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

use self::graph::{Graph, Node, WantedField, WantedPart};
use self::header::{Extent, ParserBuilder};
pub(super) use self::stores::{leads_to, settable, unfit};
use weft_ir::passes;

/// Maximum number of wanted layers if layers may form a cycle: a word has one bit for each visited layer.
const VISITED_LAYERS_MAX: usize = 64;
/// Maximum number of consecutive common-case layers with code of their own.
const SPECIALIZED_LAYERS_MAX: usize = 4;
/// Bytes that may be missing from a truncated frame: more than any packet has.
const CUT_BYTES_MAX: i64 = 1 << 20;
/// The protocol of labels, behind which fragments are tracked.
const LABELS: &str = "mpls";

/// Makes the parser for the frame inputs among `inputs`, in frames that begin with one of `roots`; `are_cut`: captured
/// frames may be truncated, so a packet may be shorter than its headers say. Adds inputs for checksums, and for
/// fragments in tunnels. `elements` are those of the chain. `behind` has the inputs that elements read after one
/// decapsulation, then those after two, and so on.
///
/// # Errors
/// A message about a limit that the chain exceeds, or about a field that it cannot set.
pub(super) fn frames(
    protocols: &[Protocol],
    (roots, are_cut): (&[ProtocolId], bool),
    inputs: &mut Vec<Input>,
    elements: &[Element],
    behind: &[InputSet],
) -> Result<Frames, String> {
    let requested_inputs = mask(inputs, |_| true);
    let mut stores = stores::plan(protocols, inputs, elements)?;
    let (inherited, carried) = (inherited(protocols, inputs), carried(protocols, inputs, behind));
    stores.resize(inputs.len(), None);
    if inputs.len() > INPUTS_MAX {
        let n = inputs.len();
        return Err(format!(
            "it needs {n} inputs, some for fragments in tunnels, and {INPUTS_MAX} are the most"
        ));
    }
    let graph = Graph::new(protocols, roots, wanted_fields(protocols, inputs, placed(&stores, &carried)));
    if graph.is_cyclic() && graph.wanted.len() > VISITED_LAYERS_MAX {
        let n = graph.wanted.len();
        return Err(format!(
            "it asks about {n} layers, and {VISITED_LAYERS_MAX} are the most where they may come in a circle"
        ));
    }
    let is_label = |(id, level): &Node| *level == 0 && protocols[usize::from(id.0)].name == LABELS;
    let has_labels = (!inherited.is_empty() || !carried.is_empty()) && graph.order.iter().any(is_label);
    let layers = graph.specialized_layers(requested_inputs);
    let usual = graph.specialized_inputs(&layers, requested_inputs);
    let mut parser = Parser {
        graph: &graph,
        out: ParserBuilder::new("parse"),
        blocks: BTreeMap::new(),
        loop_header: None,
        preheader: None,
        specialized: layers,
        copies: Vec::new(),
        entered: BTreeSet::new(),
    };
    parser.make(are_cut);
    let ParserBuilder { b, mut checks, .. } = parser.out;
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

/// Adds the checks that an overlapping fragment fails: for IPv4, whose header has the fragment fields, and for IPv6,
/// which has a header for them.
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

/// The inputs that a later fragment inherits from the first of its packet: those of the layer behind the fragmented
/// one, if no element removes that, and of a tunnel's payload behind it, if no element removes anything.
fn inherited(protocols: &[Protocol], inputs: &[Input]) -> InputSet {
    let are_moved = inputs.iter().any(|input| matches!(input.place, InputLocation::Layer(_)));
    let is_carried = |input: &Input| match &input.place {
        InputLocation::Frame(field) => field.layer.level > 0 && !are_moved,
        _ => false,
    };
    with_last(mask(inputs, is_carried) | behind_fragmented(protocols, inputs, 0), inputs, 0)
}

/// Adds to inherited inputs the columns of the last header on a level, which is inherited as well. These alone do not
/// require fragment tracking.
fn with_last(inherited: InputSet, inputs: &[Input], level: u8) -> InputSet {
    let is_last = |input: &Input| match &input.place {
        InputLocation::Frame(field) => field.last && field.layer.level == level,
        _ => false,
    };
    if inherited.is_empty() { inherited } else { inherited | mask(inputs, is_last) }
}

/// Returns how fragments in tunnels are recognized, if the chain reads headers behind them, in place or after
/// decapsulation; adds inputs for that.
fn carried(protocols: &[Protocol], inputs: &mut Vec<Input>, behind: &[InputSet]) -> Vec<Carried> {
    let [outside, inside] = [0, 1].map(|level| behind_fragmented(protocols, inputs, level));
    // The depth at which the packet arrived.
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

/// Returns the inputs for the packet that a tunnel on this level carries, and for the tunnel's id.
fn carried_in(protocols: &[Protocol], inputs: &mut Vec<Input>, level: u8) -> (u16, Option<u16>) {
    let all = || (0..protocols.len()).map(|at| ProtocolId(at as u16));
    let of = |id: ProtocolId| &protocols[usize::from(id.0)];
    let is_fragmented = |id: ProtocolId| of(id).more_fragments().is_some();
    // IPv4 headers have fragment fields; IPv6 has a header for them. Both begin with their version.
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

/// The input of this field: an existing one, or a new one that no element sees.
fn input_for(inputs: &mut Vec<Input>, name: &str, ty: Type, field: FieldRef) -> u16 {
    let place = InputLocation::Frame(field);
    let known = inputs.iter().position(|input| input.place == place);
    known.unwrap_or_else(|| {
        inputs.push(Input { name: name.to_owned(), ty, nullable: true, place, written: false });
        inputs.len() - 1
    }) as u16
}

/// The inputs of the layers on a level that directly follow a fragmented one, if no element removes them.
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

/// The inputs with a property.
fn mask(inputs: &[Input], holds: impl Fn(&Input) -> bool) -> InputSet {
    inputs.iter().enumerate().filter(|(_, input)| holds(input)).map(|(at, _)| at).collect()
}

/// The inputs whose place is needed, although they are no byte strings: for writes, for checksums, and for fragments in
/// tunnels.
fn placed(stores: &[Option<FieldWrite>], carried: &[Carried]) -> InputSet {
    let written = stores.iter().enumerate().filter(|(_, store)| store.is_some()).map(|(at, _)| at as u16);
    let sums = stores.iter().flatten().flat_map(|store| &store.sums).map(|sum| sum.input);
    let packets = carried.iter().map(|carried| carried.packet);
    written.chain(sums).chain(packets).collect()
}

/// Returns the wanted fields of each layer.
fn wanted_fields(
    protocols: &[Protocol],
    inputs: &[Input],
    placed: InputSet,
) -> BTreeMap<Node, Vec<WantedField>> {
    let mut wanted: BTreeMap<Node, Vec<WantedField>> = BTreeMap::new();
    for (at, input) in inputs.iter().enumerate() {
        let (layer, fields, last) = match &input.place {
            InputLocation::Frame(field) => (&field.layer, Some(&field.fields), field.last),
            InputLocation::Layer(layer) => (layer, None, false),
            _ => continue,
        };
        for (nth, protocol) in layer.protocols.iter().enumerate() {
            let field = |fields: &Option<Vec<FieldId>>| fields.as_ref()?.get(nth).copied();
            let what = match fields.map(field) {
                None => WantedPart::Header,
                Some(None) => WantedPart::Presence,
                Some(Some(field)) => WantedPart::Field(field),
            };
            let is_one_word = match what {
                WantedPart::Header => false,
                WantedPart::Presence => true,
                WantedPart::Field(FieldId(id)) => {
                    let fields = &protocols[usize::from(protocol.0)].fields;
                    matches!(fields[usize::from(id)].width, Width::Bits { .. })
                }
            };
            let (input, place) = (InputId(at as u16), !is_one_word || placed.contains(at));
            wanted.entry((*protocol, layer.level)).or_default().push(WantedField {
                input,
                what,
                last,
                place,
            });
        }
    }
    wanted
}

/// The compiler of a parser.
struct Parser<'g, 'n> {
    graph: &'g Graph<'n>,
    out: ParserBuilder,
    /// The block of each layer. Parameters: its extent and, if layers may form a cycle, the number of visited layers
    /// and their set.
    blocks: BTreeMap<Node, BlockId>,
    /// The block that counts layers. Parameters: the index of the layer in the order, and those of its block.
    loop_header: Option<BlockId>,
    /// All paths from common-case layers to `loop_header` go through this block, with the same parameters. A backend
    /// hoists loop invariants to it, and so keeps them off the common path.
    preheader: Option<BlockId>,
    /// The layers of most frames. They are compiled a second time before all others, once for each path to them, with
    /// known offsets.
    specialized: Vec<Vec<Node>>,
    /// Those that are not yet compiled.
    copies: Vec<SpecializedLayer>,
    /// Layers that are entered from these, beside the counted ones.
    entered: BTreeSet<Node>,
}

/// A layer with code of its own, for frames that reach it by one path.
struct SpecializedLayer {
    block: BlockId,
    node: Node,
    state: LayerState,
    /// Number of layers before it.
    nth: usize,
}

/// The state passed from layer to layer.
#[derive(Clone, Debug)]
struct LayerState {
    extent: Extent,
    /// If layers may follow a first fragment: how many bytes they may claim beyond the frame.
    slack: Option<Value>,
    /// If layers may form a cycle: the number of visited layers, and a bit for each.
    visited: Option<(Value, Value)>,
}

impl LayerState {
    /// Returns the state as arguments for a layer's block.
    fn args(&self) -> Vec<Value> {
        let visited = self.visited.iter().flat_map(|(n, which)| [*n, *which]);
        [self.extent.at, self.extent.end].into_iter().chain(self.slack).chain(visited).collect()
    }
}

impl Parser<'_, '_> {
    /// Emits the whole parser: the entry, the specialized layers, the block that counts layers, and a block for each
    /// layer.
    fn make(&mut self, are_cut: bool) {
        let (at, end) = (self.out.b.int(0), self.out.b.get(Op::FrameLen, Ty::Int));
        let is_cyclic = self.graph.is_cyclic();
        let slack = if are_cut { self.out.b.int(CUT_BYTES_MAX) } else { at };
        let slack = self.graph.has_fragments.then_some(slack);
        let start = LayerState { extent: Extent { at, end }, slack, visited: is_cyclic.then_some((at, at)) };
        for node in &self.graph.order {
            let block = self.out.b.block();
            self.blocks.insert(*node, block);
        }
        if is_cyclic {
            self.loop_header = Some(self.out.b.scan_block(u64::from(LAYERS_MAX) + 1));
            self.preheader = Some(self.out.b.block());
        }
        self.enter(&start);
        while let Some(SpecializedLayer { block, node, state, nth }) = self.copies.pop() {
            self.out.b.switch(block);
            self.read(node, state, Some(nth + 1));
        }
        self.count();
        for node in self.graph.order.clone() {
            self.layer(node);
        }
    }

    /// Emits the entry to the first layer of the frame: the only root, or the one that the first bits select.
    fn enter(&mut self, state: &LayerState) {
        let roots = self.graph.roots.clone();
        let Some((last, others)) = roots.split_last() else {
            return self.out.b.end(Terminator::Forward);
        };
        for root in others {
            let is_it = self.begins_with(*root, state.extent.at);
            let other = self.out.b.block();
            let (block, args) = self.specialized_entry(*root, state, Some(0));
            self.out.b.branch_with(is_it, (block, args), (other, Vec::new()));
            self.out.b.switch(other);
        }
        let (block, args) = self.specialized_entry(*last, state, Some(0));
        self.out.b.jump(block, args);
    }

    /// Whether a frame begins with this protocol, whose first bits are a distinctive constant (the version of IP).
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

    /// Returns the entry to a layer as [`Parser::entry_of`]; the `nth` layer of most frames has code of its own.
    fn specialized_entry(
        &mut self,
        to: Node,
        state: &LayerState,
        nth: Option<usize>,
    ) -> (BlockId, Vec<Value>) {
        let is_payload = self.graph.protocols[usize::from(to.0.0)].malformed_is_payload;
        let Some(nth) = nth else { return self.entry_of(to, state, self.loop_header) };
        if !self.is_specialized(to, nth) || is_payload {
            return match self.is_counted(to) {
                true => self.entry_of(to, state, self.preheader),
                false => self.uncounted_entry(to, state),
            };
        }
        let (block, mut state) = (self.out.b.block(), state.clone());
        if let Some((n, _)) = &mut state.visited
            && self.is_counted(to)
        {
            // No such path has too many layers.
            let one = self.out.b.int(1);
            *n = self.out.b.int_binary(IntOp::Add, *n, one);
        }
        self.copies.push(SpecializedLayer { block, node: to, state, nth });
        (block, Vec::new())
    }

    /// The entry to another layer from common-case layers, without counting it again: where layers may form a cycle,
    /// repeatable layers are behind the counting block.
    fn uncounted_entry(&mut self, to: Node, state: &LayerState) -> (BlockId, Vec<Value>) {
        let (Some(preheader), Some((n, visited))) = (self.preheader, state.visited) else {
            return (self.blocks[&to], state.args());
        };
        self.entered.insert(to);
        let (which, one) = (self.out.b.int(self.index(to)), self.out.b.int(1));
        let n = self.out.b.int_binary(IntOp::Sub, n, one);
        let state = LayerState { visited: Some((n, visited)), ..state.clone() };
        (preheader, [which].into_iter().chain(state.args()).collect())
    }

    /// Whether most frames have this layer as the `nth`, so that it gets code of its own.
    fn is_specialized(&self, layer: Node, nth: usize) -> bool {
        nth < SPECIALIZED_LAYERS_MAX
            && self.specialized.get(nth).is_some_and(|protocols| protocols.contains(&layer))
    }

    /// Returns the entry to a layer: its block, or, if it may come again, the block that counts or leads there.
    fn entry_of(&mut self, to: Node, state: &LayerState, count: Option<BlockId>) -> (BlockId, Vec<Value>) {
        match count {
            Some(loop_header) if self.is_counted(to) => {
                let which = self.out.b.int(self.index(to));
                (loop_header, [which].into_iter().chain(state.args()).collect())
            }
            _ => (self.blocks[&to], state.args()),
        }
    }

    /// Whether a layer may come more than once in a frame.
    fn is_counted(&self, layer: Node) -> bool {
        self.graph.backs.iter().any(|(_, back)| *back == layer) || self.graph.roots.contains(&layer)
    }

    fn index(&self, node: Node) -> i64 {
        self.graph.order.iter().position(|known| *known == node).unwrap_or(0) as i64
    }

    /// Emits the block through which all repeatable layers are entered: it counts them, and ends the path after
    /// [`LAYERS_MAX`].
    fn count(&mut self) {
        let Some((loop_header, preheader)) = self.loop_header.zip(self.preheader) else { return };
        let n_params = 5 + usize::from(self.graph.has_fragments);
        let args = (0..n_params).map(|_| self.out.b.param(preheader, Ty::Int)).collect();
        self.out.b.switch(preheader);
        self.out.b.jump(loop_header, args);
        let [which, at, end] = [(); 3].map(|()| self.out.b.param(loop_header, Ty::Int));
        let slack = self.graph.has_fragments.then(|| self.out.b.param(loop_header, Ty::Int));
        let [n, visited] = [(); 2].map(|()| self.out.b.param(loop_header, Ty::Int));
        self.out.b.switch(loop_header);
        let max = self.out.b.int(i64::from(LAYERS_MAX));
        let over = self.out.b.int_compare(IntCmp::ULe, max, n);
        let [too_many, goes_on] = [(); 2].map(|()| self.out.b.block());
        self.out.b.branch(over, too_many, goes_on);
        self.out.b.switch(goes_on);
        let one = self.out.b.int(1);
        let n = self.out.b.int_binary(IntOp::Add, n, one);
        let state = LayerState { extent: Extent { at, end }, slack, visited: Some((n, visited)) };
        let backs = self.graph.backs.iter().map(|(_, to)| *to);
        let mut targets: Vec<Node> = self.graph.roots.iter().copied().chain(backs).collect();
        targets.sort_unstable();
        targets.dedup();
        let entered = self.entered.iter().copied().filter(|to| !targets.contains(to));
        let entries: Vec<Node> = targets.iter().copied().chain(entered).collect();
        let blocks = entries.iter().map(|target| (self.blocks[target], state.args())).collect();
        self.choose(which, &entries, blocks);
        self.out.b.switch(too_many);
        let ends = targets.iter().map(|target| (self.end_of_too_many(*target), Vec::new())).collect();
        self.choose(which, &targets, ends);
    }

    /// Jumps to the block of the selected layer.
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

    /// The end before a layer that would be one too many.
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

    /// Emits the block of a layer at any offset.
    fn layer(&mut self, node: Node) {
        let block = self.blocks[&node];
        let [at, end] = [(); 2].map(|()| self.out.b.param(block, Ty::Int));
        let slack = self.graph.has_fragments.then(|| self.out.b.param(block, Ty::Int));
        let visited = self.loop_header.is_some().then(|| {
            let [n, which] = [(); 2].map(|()| self.out.b.param(block, Ty::Int));
            (n, which)
        });
        self.out.b.switch(block);
        self.read(node, LayerState { extent: Extent { at, end }, slack, visited }, None);
    }

    /// Emits the code that reads the header of a layer, and the branches to the next layers. `behind` is the position
    /// of the next layer if this one is specialized: then a common next layer has code of its own.
    fn read(&mut self, node: Node, state: LayerState, behind: Option<usize>) {
        let graph = self.graph;
        let protocol = &graph.protocols[usize::from(node.0.0)];
        let wanted = graph.wanted.get(&node).map(Vec::as_slice).unwrap_or_default();
        let mut edges: Vec<(usize, Node)> = graph
            .edges(node)
            .map(|(next, to)| {
                (protocol.next.iter().position(|own| core::ptr::eq(own, next)).unwrap_or(0), to)
            })
            .collect();
        // The conditions exclude each other, so the likely ones may be tested first: those without a cycle, and those
        // with few successors.
        let is_specialized = |to: Node| behind.is_some_and(|nth| self.is_specialized(to, nth));
        edges.sort_by_key(|(_, to)| (!is_specialized(*to), self.is_counted(*to), graph.edges(*to).count()));
        let goes_on = edges.iter().any(|(_, to)| is_specialized(*to));
        let is_plain = behind.is_some() && (goes_on || protocol.more_fragments().is_some());
        let unusual = is_plain.then(|| self.uncounted_entry(node, &state));
        let next: Vec<usize> = edges.iter().map(|(at, _)| *at).collect();
        let LayerState { extent, slack, visited } = state;
        let (first, visited) = self.visit(node, visited, wanted.iter().any(|wanted| !wanted.last));
        if protocol.malformed_is_payload {
            self.check_first(protocol, extent, slack);
        }
        let read = header::read(&mut self.out, protocol, extent, wanted, &next, (first, slack), unusual);
        self.out.payload = None;
        let state = LayerState { extent: read.payload, slack: read.slack, visited };
        for ((at, to), condition) in edges.iter().zip(read.conditions) {
            let other = self.out.b.block();
            if protocol.next[*at].or_bytes {
                let look = self.out.b.block();
                self.out.b.branch(condition, look, other);
                self.out.b.switch(look);
                self.check_first(&graph.protocols[usize::from(to.0.0)], state.extent, state.slack);
                self.out.payload = None;
                let (block, args) = self.specialized_entry(*to, &state, behind);
                self.out.b.jump(block, args);
            } else {
                let (block, args) = self.specialized_entry(*to, &state, behind);
                self.out.b.branch_with(condition, (block, args), (other, Vec::new()));
            }
            self.out.b.switch(other);
        }
        self.out.b.end(Terminator::Forward);
    }

    /// Ends the path before a header that breaks a rule. Such a header sets no inputs, so it is checked completely
    /// before it is read.
    fn check_first(&mut self, protocol: &Protocol, extent: Extent, slack: Option<Value>) {
        self.out.payload = Some(self.out.b.block_that(Terminator::Forward));
        header::read(&mut self.out, protocol, extent, &[], &[], (None, slack), None);
    }

    /// Emits the update of the set of visited layers. Returns whether the layer comes for the first time (`None` if
    /// no field needs it), and the updated set.
    fn visit(
        &mut self,
        node: Node,
        visited: Option<(Value, Value)>,
        is_wanted: bool,
    ) -> (Option<Value>, Option<(Value, Value)>) {
        let Some((n, which)) = visited.filter(|_| is_wanted) else { return (None, visited) };
        let nth = self.graph.wanted.range(..node).count();
        let bit = self.out.b.int(1 << nth);
        let zero = self.out.b.int(0);
        let seen = self.out.b.int_binary(IntOp::And, which, bit);
        let first = self.out.b.int_compare(IntCmp::Eq, seen, zero);
        let which = self.out.b.int_binary(IntOp::Or, which, bit);
        (Some(first), Some((n, which)))
    }
}
