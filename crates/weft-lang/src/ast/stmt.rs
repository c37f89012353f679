//! The syntax tree of statements.

use super::*;

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// The kind.
    pub kind: StmtKind,
    /// With its `;`.
    pub span: Span,
}

/// The statements.
#[derive(Clone, PartialEq, Debug)]
pub enum StmtKind {
    /// `LET x [TYPE] = e;`
    Let {
        /// The new name.
        name: Ident,
        /// Its type, if written.
        ty: Option<TypeExpr>,
        /// Its value.
        value: Expr,
    },
    /// `SET place = e;`
    Set {
        /// The target.
        target: AssignTarget,
        /// The new value.
        value: Expr,
    },
    /// `IF e THEN ... ELSIF ... ELSE ... END IF;`
    If {
        /// `IF` and each `ELSIF`, at least one.
        arms: Vec<IfArm>,
        /// `ELSE`.
        otherwise: Option<Vec<Stmt>>,
    },
    /// `[INSERT INTO output] SELECT ... FROM input ... [ELSE verdict];`
    Guard(Guard),
    /// `INSERT INTO t ...;` into a table or a sink.
    Insert(Insert),
    /// `UPSERT t KEY (...) SET ...;`
    Upsert(Upsert),
    /// `UPDATE t SET ... WHERE ... ;`
    Update(Update),
    /// `DELETE FROM t WHERE e;`
    Delete {
        /// The table.
        table: Ident,
        /// The condition on rows.
        filter: Expr,
    },
    /// `SCAN t MAX n ... END SCAN;`
    Scan(Scan),
    /// `ADD x [, n];` on a merged variable, or on a sketch.
    Add {
        /// The variable or sketch.
        target: Ident,
        /// How much; 1 if left out.
        amount: Option<Expr>,
    },
    /// `RESET x;`
    Reset {
        /// The variable.
        target: Ident,
    },
    /// `MIRROR TO e;`
    Mirror {
        /// The destination of the copy.
        to: Expr,
    },
    /// `MARK (f = e, ...);`, or `MARK e;`, which sets the class.
    Mark {
        /// The fields and their values.
        fields: Vec<Assign>,
    },
    /// `DELAY e;`
    Delay {
        /// The duration of the delay.
        interval: Expr,
    },
    /// `SIGNAL name(args);`
    Signal {
        /// The signal.
        name: Ident,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// `MESSAGE [TO e] (f = e, ...);`: sends an additional message.
    Message {
        /// The destination; if omitted, that of the tuple.
        to: Option<Expr>,
        /// Its fields.
        fields: Vec<Assign>,
    },
    /// `PUSH p (f = e, ...), q, ...;`
    Push {
        /// The headers to push, in wire order.
        headers: Vec<Pushed>,
    },
    /// `POP;`, `POP layer;` or `POP TO layer;`
    Pop {
        /// `TO` is written.
        to: bool,
        /// The layer.
        layer: Option<Path>,
    },
    /// `CUT TO e;`
    Cut {
        /// How many bytes of the frame stay.
        bytes: Expr,
    },
    /// `FRAGMENT TO e;`
    Fragment {
        /// How long each packet is at most.
        bytes: Expr,
    },
    /// A verdict, which ends the handler.
    Verdict(Verdict),
    /// A verdict of a queue.
    QueueVerdict(QueueVerdict),
}

/// The field that `MARK e;` sets.
pub const MARK_CLASS: &str = "class";

/// A header of a PUSH: `p (f = e, ...)`
#[derive(Clone, PartialEq, Debug)]
pub struct Pushed {
    /// The protocol.
    pub protocol: Ident,
    /// The fields that are set.
    pub fields: Vec<Assign>,
    /// The whole.
    pub span: Span,
}

/// `IF e THEN ...` or `ELSIF e THEN ...`
#[derive(Clone, PartialEq, Debug)]
pub struct IfArm {
    /// The condition.
    pub condition: Expr,
    /// The statements.
    pub body: Vec<Stmt>,
    /// From the keyword to the last statement.
    pub span: Span,
}

/// A target of `SET` and `WITH`.
#[derive(Clone, PartialEq, Debug)]
pub enum AssignTarget {
    /// A column of the message, a CALL column, or a variable.
    Path(Path),
    /// `header['key']`
    Header {
        /// The key.
        key: Expr,
        /// The whole.
        span: Span,
    },
    /// `trailer['key']`
    Trailer {
        /// The key.
        key: Expr,
        /// The whole.
        span: Span,
    },
}

impl AssignTarget {
    /// The whole place.
    pub fn span(&self) -> Span {
        match self {
            Self::Path(path) => path.span,
            Self::Header { span, .. } | Self::Trailer { span, .. } => *span,
        }
    }
}

/// `name = e`
#[derive(Clone, PartialEq, Debug)]
pub struct Assign {
    /// The name.
    pub name: Ident,
    /// Its value.
    pub value: Expr,
    /// The whole.
    pub span: Span,
}

/// `place = e` after `ABORT ... WITH`.
#[derive(Clone, PartialEq, Debug)]
pub struct WithItem {
    /// The target.
    pub target: AssignTarget,
    /// The new value.
    pub value: Expr,
    /// The whole.
    pub span: Span,
}

/// `[INSERT INTO output] SELECT ... FROM input ... [ELSE verdict]`
#[derive(Clone, PartialEq, Debug)]
pub struct Guard {
    /// `INSERT INTO output`, the form of the ADN paper.
    pub into_output: Option<Span>,
    /// The query, of one row at most.
    pub select: Select,
    /// The action if there is no row.
    pub otherwise: Option<Verdict>,
}

/// `SELECT items FROM input joins [WHERE e]`
#[derive(Clone, PartialEq, Debug)]
pub struct Select {
    /// The selected items, at least one.
    pub items: Vec<SelectItem>,
    /// Joins in order.
    pub joins: Vec<Join>,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// The query.
    pub span: Span,
}

/// One item of a `SELECT`.
#[derive(Clone, PartialEq, Debug)]
pub enum SelectItem {
    /// `*`
    Star(Span),
    /// `e [AS name]`
    Value {
        /// The value.
        value: Expr,
        /// `AS name`.
        alias: Option<Ident>,
    },
}

/// `[LEFT] JOIN t [alias] USING (cols) | ON e`, or `[LEFT] JOIN FIRST t [alias] BY c [ASC | DESC] ON e`
#[derive(Clone, PartialEq, Debug)]
pub struct Join {
    /// `LEFT`.
    pub left: Option<Span>,
    /// The table.
    pub table: Ident,
    /// Its name here.
    pub alias: Option<Ident>,
    /// `FIRST ... BY c`.
    pub first: Option<First>,
    /// The condition on which rows match.
    pub condition: JoinCondition,
    /// The whole.
    pub span: Span,
}

/// `FIRST` and `BY c [ASC | DESC]`: of the matching rows, the one with the best `c`.
#[derive(Clone, PartialEq, Debug)]
pub struct First {
    /// The column.
    pub by: Ident,
    /// `DESC`: the greatest is the best.
    pub descending: bool,
}

/// How the rows of a join meet.
#[derive(Clone, PartialEq, Debug)]
pub enum JoinCondition {
    /// `USING (a, b)`
    Using(Vec<Ident>),
    /// `ON e`
    On(Expr),
}

/// `INSERT INTO t [(cols)] VALUES ... | SELECT ...`
#[derive(Clone, PartialEq, Debug)]
pub struct Insert {
    /// The table or sink.
    pub into: Ident,
    /// The listed columns; empty if the list is omitted, which means all columns in order.
    pub columns: Vec<Ident>,
    /// The source of the rows.
    pub source: InsertSource,
}

/// The source of an INSERT's rows.
#[derive(Clone, PartialEq, Debug)]
pub enum InsertSource {
    /// `VALUES (...), ...`, at least one row.
    Values(Vec<Row>),
    /// `SELECT ... FROM input ...`
    Select(Select),
}

/// `UPSERT t KEY (e, ...) SET c = e, ...`
#[derive(Clone, PartialEq, Debug)]
pub struct Upsert {
    /// The table.
    pub table: Ident,
    /// The key, at least one expression.
    pub key: Vec<Expr>,
    /// The columns set, at least one.
    pub set: Vec<Assign>,
}

/// `UPDATE t SET c = e, ... [WHERE e] [RETURNING c INTO v, ...] [ELSE ...]`
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// The table.
    pub table: Ident,
    /// The columns set, at least one.
    pub set: Vec<Assign>,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// `RETURNING ...`.
    pub returning: Vec<Returning>,
    /// The statements that run if no row changed: a verdict or one statement, or several as `ELSE DO ... END UPDATE`.
    pub otherwise: Option<Vec<Stmt>>,
}

/// `column INTO place`
#[derive(Clone, PartialEq, Debug)]
pub struct Returning {
    /// The column of the table, after the update.
    pub column: Ident,
    /// The target of its value.
    pub into: Path,
    /// The whole.
    pub span: Span,
}

/// `SCAN t MAX n [AS r] [WHERE e] DO ... END SCAN;`
#[derive(Clone, PartialEq, Debug)]
pub struct Scan {
    /// The table, or a sketch with `TOP`.
    pub table: Ident,
    /// The maximum number of rows read.
    pub max: Expr,
    /// `AS r`; without it, columns are qualified by the table's name.
    pub alias: Option<Ident>,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// The statements for each row.
    pub body: Vec<Stmt>,
}

/// A verdict.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The kind.
    pub kind: VerdictKind,
    /// Without the `;`.
    pub span: Span,
}

/// The verdicts.
#[derive(Clone, PartialEq, Debug)]
pub enum VerdictKind {
    /// `FORWARD`
    Forward,
    /// `DROP`
    Drop,
    /// `ABORT status [text] [WITH place = e, ...]`
    Abort {
        /// The status: a name, a parameter, a number, or an expression in parentheses.
        status: Expr,
        /// The message.
        text: Option<Expr>,
        /// Headers and trailers to send.
        with: Vec<WithItem>,
    },
    /// `REPLY (col = e, ...)`
    Reply {
        /// The answer.
        fields: Vec<Assign>,
    },
    /// `REPLY PAYLOAD e`
    ReplyPayload {
        /// The message.
        bytes: Expr,
    },
    /// `REDIRECT TO e`
    Redirect {
        /// An endpoint or cluster.
        to: Expr,
    },
    /// `STEER TO edge`
    Steer {
        /// One of the element's edges.
        edge: Ident,
    },
}
