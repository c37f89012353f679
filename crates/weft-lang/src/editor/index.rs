//! Indexes the declarations and uses of names in all files of a program.
//!
//! Names are resolved as in the checker, but on syntax trees only: an element with an error in its third handler still
//! has its columns. An ambiguous name refers to the nearest declaration; an unknown name has no entry.

mod declare;
mod stmt;
mod walk;
mod wire;

use std::collections::BTreeMap;

use crate::ast::{Ident, Item, Kind, Path};
use crate::hir::Direction;
use crate::resolve::{Program, kind_word};
use crate::source::{FileId, Span};
use walk::Indexer;

/// The kind of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub enum SymbolKind {
    /// A top-level item.
    Item(Kind),
    /// A field of a header.
    WireField,
    Param,
    /// A column of the message in one direction.
    Column(Direction),
    TableColumn,
    Var,
    CallCell,
    Sink,
    SinkColumn,
    Sketch,
    Edge,
    Handler,
    Signal,
    Local,
    /// A name for the row of a table.
    Row,
    /// An element in a chain.
    Instance,
}

impl SymbolKind {
    /// Returns the word for the kind in a sentence.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Item(kind) => kind_word(kind),
            Self::WireField => "field of a header",
            Self::Param => "parameter",
            Self::Column(Direction::Request) => "column of the request",
            Self::Column(Direction::Response) => "column of the response",
            Self::TableColumn => "column of a table",
            Self::Var => "variable",
            Self::CallCell => "cell of the call",
            Self::Sink => "sink",
            Self::SinkColumn => "column of a sink",
            Self::Sketch => "sketch",
            Self::Edge => "edge",
            Self::Handler => "handler",
            Self::Signal => "signal",
            Self::Local => "local value",
            Self::Row => "row of a table",
            Self::Instance => "instance",
        }
    }
}

/// A symbol: an index into [`Index::symbols`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SymbolId(pub usize);

/// A named item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// The kind.
    pub kind: SymbolKind,
    /// The name where it is declared.
    pub span: Span,
    /// The whole declaration.
    pub whole: Span,
    /// Its type as written, if any.
    pub ty: Option<Span>,
    /// The owner: the element of a column, the table of a table column, the chain of an instance.
    pub owner: Option<SymbolId>,
    /// The symbol that it refers to: the element of an instance, the table of a row.
    pub of: Option<SymbolId>,
}

/// A place where a symbol is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The name.
    pub span: Span,
    /// The symbol that the name refers to.
    pub symbol: SymbolId,
    /// The name is declared here.
    pub is_declaration: bool,
}

/// A path to a field of a message, in the arguments of a stage: `req.user.id`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldUse {
    /// Its parts.
    pub path: Path,
    /// The chain.
    pub chain: SymbolId,
    /// The column that is bound to it, if the element has the column.
    pub column: Option<SymbolId>,
}

/// All names of a program.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// The symbols.
    pub symbols: Vec<Symbol>,
    /// Its uses, in the order of files and text.
    pub uses: Vec<Use>,
    /// Paths to fields of messages.
    pub fields: Vec<FieldUse>,
    members: BTreeMap<(Option<SymbolId>, String), Vec<SymbolId>>,
    /// By the name where it is declared.
    declared: BTreeMap<Span, SymbolId>,
}

impl Index {
    /// Reads the trees of a program.
    pub fn new(program: &Program) -> Self {
        let mut walk = Indexer::default();
        for item in &program.items {
            walk.index.declare(item);
        }
        // INSERT refers to instances, which may be declared later in the text.
        let (rows, others): (Vec<_>, Vec<_>) =
            program.items.iter().partition(|item| matches!(item, Item::Insert(_)));
        for item in others.into_iter().chain(rows) {
            walk.item(item);
        }
        let mut index = walk.index;
        index.uses.sort_by_key(|found| (found.span.file, found.span.start, found.span.end));
        index
    }

    /// The symbol of an id.
    pub fn symbol(&self, id: SymbolId) -> &Symbol {
        &self.symbols[id.0]
    }

    /// All symbols with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (SymbolId, &Symbol)> {
        self.symbols.iter().enumerate().map(|(at, symbol)| (SymbolId(at), symbol))
    }

    /// The name at a position; the end of a name counts as part of it, because the cursor is there after typing.
    pub fn at(&self, file: FileId, offset: u32) -> Option<Use> {
        let from = self.uses.partition_point(|found| (found.span.file, found.span.end) < (file, offset));
        let near = self.uses[from..]
            .iter()
            .take_while(|found| found.span.file == file && found.span.start <= offset);
        near.filter(|found| found.span.end >= offset).min_by_key(|found| found.span.len()).copied()
    }

    /// All uses of a symbol.
    pub fn uses_of(&self, symbol: SymbolId) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(move |found| found.symbol == symbol)
    }

    /// The members of a symbol, in source order; without an owner, the top-level symbols.
    pub fn members_of(&self, owner: Option<SymbolId>) -> impl Iterator<Item = (SymbolId, &Symbol)> {
        self.iter().filter(move |(_, symbol)| symbol.owner == owner)
    }

    /// The path to a field at a place.
    pub fn field_at(&self, file: FileId, offset: u32) -> Option<&FieldUse> {
        let holds = |span: Span| span.file == file && span.start <= offset && offset <= span.end;
        self.fields.iter().find(|field| holds(field.path.span))
    }

    /// The member of a symbol with a name, the last one declared.
    pub fn member(
        &self,
        owner: Option<SymbolId>,
        name: &str,
        is_meant: impl Fn(SymbolKind) -> bool,
    ) -> Option<SymbolId> {
        let all = self.members.get(&(owner, name.to_owned()))?;
        all.iter().rev().copied().find(|id| is_meant(self.symbols[id.0].kind))
    }

    /// Adds a symbol, and its declaration as a use.
    fn declare_symbol(
        &mut self,
        kind: SymbolKind,
        name: &Ident,
        whole: Span,
        owner: Option<SymbolId>,
    ) -> SymbolId {
        let id = SymbolId(self.symbols.len());
        let (name, span) = (name.name.clone(), name.span);
        self.uses.push(Use { span, symbol: id, is_declaration: true });
        self.declared.insert(span, id);
        self.members.entry((owner, name.clone())).or_default().push(id);
        self.symbols.push(Symbol { name, kind, span, whole, ty: None, owner, of: None });
        id
    }

    /// Records a use of a symbol.
    fn record_use(&mut self, span: Span, symbol: SymbolId) {
        self.uses.push(Use { span, symbol, is_declaration: false });
    }

    /// Records a use of a name of this kind, in `owner` or at the top level. Returns the symbol; None if there is
    /// none.
    fn record_member(&mut self, owner: Option<SymbolId>, name: &Ident, kind: SymbolKind) -> Option<SymbolId> {
        let found = self.member(owner, &name.name, |known| known == kind)?;
        self.record_use(name.span, found);
        Some(found)
    }

    /// Records the output of a chain: a port or a group.
    fn record_outlet(&mut self, name: &Ident) {
        if self.record_member(None, name, SymbolKind::Item(Kind::Port)).is_none() {
            self.record_member(None, name, SymbolKind::Item(Kind::Group));
        }
    }
}
