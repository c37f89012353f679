//! Checks the statements and actions of handlers.

mod guard;
mod rows;
mod verdict;

use crate::ast::{self, Ident, StmtKind as Ast};
use crate::check::action::check_action;
use crate::check::expr::Environment;
use crate::check::header::header_name;
use crate::check::named_ports::{NoPort, is_reserved};
use crate::check::scope::Scope;
use crate::check::suggest::unknown_layer;
use crate::check::suggest::with_nearest;
use crate::check::tree::constant;
use crate::check::view::View;
use crate::check::{frame, header, header_changes, mark};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{AssignTarget, Expr, ExprKind, HandlerKind, Stmt, StmtKind};
use crate::source::Span;
use crate::types;
use weft_core::{Type, Value};

/// The maximum number of visible LETs.
const LOCALS_MAX: usize = 4096;

/// Checks the statements of a block. Its LETs and joined rows end with it.
pub(super) fn block(scope: &mut Scope<'_, '_>, stmts: &[ast::Stmt]) -> Vec<Stmt> {
    let (n_names, n_visible_rows, n_non_null) =
        (scope.locals.visible().len(), scope.rows.visible().len(), scope.non_null.len());
    let mut body = Vec::new();
    for (index, stmt) in stmts.iter().enumerate() {
        if scope.cx.is_at_limit() {
            break;
        }
        if let Some(kind) = statement(scope, stmt) {
            body.push(Stmt { kind, span: stmt.span });
        }
        if let (Ast::Verdict(verdict), Some(next)) = (&stmt.kind, stmts.get(index + 1)) {
            let diagnostic = Diagnostic::warning(code::UNREACHABLE, "this statement is unreachable")
                .at(next.span, "follows a verdict")
                .with_label(verdict.span, "ends the handler")
                .with_help("remove it, or move it before the verdict");
            scope.cx.report(diagnostic);
            break;
        }
    }
    scope.locals.hide_after(n_names);
    scope.rows.hide_after(n_visible_rows);
    scope.non_null.forget_after(n_non_null);
    body
}

/// Checks an IF and narrows nullable columns: each arm may assume its own condition and the negation of earlier
/// ones. After the IF, the negations of the leading arms that end the handler still hold.
fn if_stmt(
    scope: &mut Scope<'_, '_>,
    arms: &[ast::IfArm],
    otherwise: Option<&[ast::Stmt]>,
) -> Option<StmtKind> {
    let n_non_null = scope.non_null.len();
    let (mut checked, mut n_untrue, mut all_end) = (Some(Vec::new()), n_non_null, true);
    for arm in arms {
        let condition = scope.condition(&arm.condition);
        let n_before = scope.non_null.len();
        condition.iter().for_each(|condition| scope.non_null.assume_true(condition));
        let body = block(scope, &arm.body);
        scope.non_null.forget_after(n_before);
        if let Some(condition) = &condition {
            scope.non_null.assume_not_true(condition);
        }
        all_end &= ends_handler(&arm.body);
        if all_end {
            n_untrue = scope.non_null.len();
        }
        checked = checked.zip(condition).map(|(mut arms, condition)| {
            arms.push((condition, body));
            arms
        });
    }
    let otherwise = otherwise.map(|body| block(scope, body)).unwrap_or_default();
    scope.non_null.forget_after(n_untrue);
    Some(StmtKind::If { arms: checked?, otherwise })
}

/// Checks one statement. None if it has an error, which is reported.
fn statement(scope: &mut Scope<'_, '_>, stmt: &ast::Stmt) -> Option<StmtKind> {
    match &stmt.kind {
        Ast::Let { name, ty, value } => let_stmt(scope, name, ty.as_ref(), value),
        Ast::Set { target, value } => set(scope, target, value),
        Ast::If { arms, otherwise } => if_stmt(scope, arms, otherwise.as_deref()),
        Ast::Guard(guard) => guard::guard(scope, guard, stmt.span),
        Ast::Insert(insert) => rows::insert(scope, insert),
        Ast::Upsert(upsert) => rows::upsert(scope, upsert, stmt.span),
        Ast::Update(update) => rows::update(scope, update, stmt.span),
        Ast::Delete { table, filter } => rows::delete(scope, table, filter),
        Ast::Scan(scan) => rows::scan(scope, scan),
        Ast::Add { target, amount } => add(scope, target, amount.as_ref(), stmt.span),
        Ast::Reset { target } => reset(scope, target),
        Ast::Mirror { to } => {
            check_action(scope, &[HandlerKind::Open, HandlerKind::Request], "MIRROR", stmt.span)?;
            Some(StmtKind::Mirror { to: target(scope, to)? })
        }
        Ast::Mark { fields } => mark::mark(scope, fields, stmt.span),
        Ast::Delay { interval } => {
            let data = [HandlerKind::Open, HandlerKind::Request, HandlerKind::Response];
            check_action(scope, &data, "DELAY", stmt.span)?;
            Some(StmtKind::Delay { interval: scope.value_for(interval, Type::Interval, false, "a delay")? })
        }
        Ast::Signal { .. } => {
            not_on_rpc(scope, stmt.span, "SIGNAL", "signals are not supported in this version")
        }
        Ast::Message { .. } => not_on_rpc(
            scope,
            stmt.span,
            "MESSAGE",
            "MESSAGE needs a message stream, which is not supported in this version",
        ),
        Ast::Push { headers } if scope.is_packet() => header_changes::push(scope, headers, stmt.span),
        Ast::Pop { to, layer } if scope.is_packet() => {
            header_changes::pop(scope, *to, layer.as_ref(), stmt.span)
        }
        Ast::Cut { bytes } if scope.is_packet() => header_changes::cut(scope, bytes, stmt.span),
        Ast::Fragment { bytes } if scope.is_packet() => header_changes::fragment(scope, bytes, stmt.span),
        Ast::Push { .. } => not_on_rpc(scope, stmt.span, "PUSH", "PUSH works on packet layers"),
        Ast::Pop { .. } => not_on_rpc(scope, stmt.span, "POP", "POP works on packet layers"),
        Ast::Cut { .. } => not_on_rpc(scope, stmt.span, "CUT", "CUT works on packet layers"),
        Ast::Fragment { .. } => not_on_rpc(scope, stmt.span, "FRAGMENT", "FRAGMENT works on packet layers"),
        Ast::Verdict(verdict) => verdict::verdict(scope, verdict).map(StmtKind::Verdict),
        Ast::QueueVerdict(_) => {
            Diagnostic::error(code::VERDICT_NOT_HERE, "a queue's verdict in an element's handler")
                .at(stmt.span, "for handlers of a QUEUE")
                .refuse(scope.cx)
        }
    }
}

// ---- values ------------------------------------------------------------------------------------------------

/// Checks a LET and declares its local, which later statements see even if the value has an error.
fn let_stmt(
    scope: &mut Scope<'_, '_>,
    name: &Ident,
    ty: Option<&ast::TypeExpr>,
    value: &ast::Expr,
) -> Option<StmtKind> {
    let value = match ty {
        Some(ty) => scope.cx.type_expr(ty).map(types::without_length).and_then(|known| {
            let whose = format!("`{}`", name.name);
            scope
                .value_for(value, known, ty.nullable, &whose)
                .map(|value| Expr { nullable: ty.nullable, ..value })
        }),
        None => scope.expr(value, None),
    };
    if let Some((first, _)) = scope.locals.visible().iter().find(|(known, _)| known.name == name.name) {
        let diagnostic = Diagnostic::error(code::DUPLICATE_NAME, format!("`{}` is named twice", name.name))
            .at(name.span, "the second")
            .with_label(first.span, "the first")
            .with_help("a LET cannot be changed; give the new value its own name");
        scope.cx.report(diagnostic);
    }
    let local = value.as_ref().map(|value| scope.locals.add(name, value.ty, value.nullable));
    if scope.locals.visible().len() >= LOCALS_MAX {
        let message = format!("more than {LOCALS_MAX} names in one handler");
        let help = "use a TABLE for many values";
        return scope.cx.refuse(code::OVER_LIMIT, message, name.span, "one too many", help);
    }
    scope.locals.show(name, local);
    Some(StmtKind::Let { local: local?, value: value? })
}

/// Checks a SET: the target, and that the value has its type.
fn set(scope: &mut Scope<'_, '_>, place: &ast::AssignTarget, value: &ast::Expr) -> Option<StmtKind> {
    match assign_target(scope, place) {
        Some((target, ty, nullable, whose)) => {
            let value = scope.value_for(value, ty, nullable, &whose)?;
            if let ast::AssignTarget::Path(path) = place {
                frame::check_fits(scope, path, &value)?;
            }
            Some(StmtKind::Set { target, value })
        }
        None => {
            // The value is checked too, to report its errors in the same run.
            scope.expr(value, None);
            None
        }
    }
}

/// Resolves an assignment target: its location, its type, whether it may be NULL, and its description.
fn assign_target(
    scope: &mut Scope<'_, '_>,
    target: &ast::AssignTarget,
) -> Option<(AssignTarget, Type, bool, String)> {
    match target {
        ast::AssignTarget::Path(path) => named_place(scope, path),
        ast::AssignTarget::Header { span, .. } | ast::AssignTarget::Trailer { span, .. }
            if scope.is_packet() =>
        {
            no_write(scope, *span, "frames have no named headers", "set a protocol's field: `ip.ttl`")
        }
        ast::AssignTarget::Header { key, span } => {
            let name = written_header(scope, key)?;
            if !matches!(
                scope.view,
                View::Handler(HandlerKind::Open | HandlerKind::Request | HandlerKind::Response)
            ) {
                return no_write(
                    scope,
                    *span,
                    "the headers have already been sent",
                    "set trailer['...'] in ON CLOSE, or the header in ON RESPONSE",
                );
            }
            Some((AssignTarget::Header(name), Type::Text(None), true, "a header".to_owned()))
        }
        ast::AssignTarget::Trailer { key, span } => {
            let name = written_header(scope, key)?;
            if scope.view != View::Handler(HandlerKind::Close) {
                return no_write(
                    scope,
                    *span,
                    "trailers are sent at the end of the call",
                    "set it in ON CLOSE, or with ABORT ... WITH",
                );
            }
            Some((AssignTarget::Trailer(name), Type::Text(None), true, "a trailer".to_owned()))
        }
    }
}

/// The name of a header or trailer that a program may set; reports protocol-owned ones.
fn written_header(scope: &mut Scope<'_, '_>, key: &ast::Expr) -> Option<String> {
    let name = header_name(scope, key)?;
    match header::instead_of_writing(&name) {
        None => Some(name),
        Some(help) => no_write(scope, key.span, "set by the protocol", help),
    }
}

/// Resolves the target of a SET. Returns it with its type, whether it may be NULL, and its name for diagnostics.
fn named_place(scope: &mut Scope<'_, '_>, path: &ast::Path) -> Option<(AssignTarget, Type, bool, String)> {
    let name = match path.segments.as_slice() {
        [name] => name,
        [input, name] if input.name == "input" => name,
        _ if scope.is_packet() => {
            return match frame::frame_place(scope, path) {
                Some(found) => found,
                None => {
                    unknown_layer(scope.cx, path);
                    None
                }
            };
        }
        [_, name] => {
            let help = format!("change a table row with `UPDATE ... SET {} = ...`", name.name);
            return no_write(scope, path.span, "not a column of the message", &help);
        }
        _ => {
            return no_write(
                scope,
                path.span,
                "not a column of the message",
                "declare a column and bind it to this field in the chain",
            );
        }
    };
    let element = scope.element;
    let whose = format!("`{}`", name.name);
    if path.segments.len() == 1
        && let Some((known, _)) = scope.locals.find(&name.name)
    {
        let label = format!("`{}` is a LET", known.name);
        let help = "a LET cannot be changed: use a CALL column, or another LET";
        return no_write(scope, path.span, &label, help);
    }
    if let Some(at) = scope.own_column(&name.name) {
        let column = &element.columns[at];
        let known = !scope.cx.is_broken(column.span);
        return known.then_some((AssignTarget::Column(at), column.ty, column.nullable, whose));
    }
    if let Some(at) = element.call.iter().position(|cell| cell.name == name.name)
        && scope.view.has_call()
    {
        let cell = &element.call[at];
        return (!scope.cx.is_broken(cell.span)).then_some((AssignTarget::Call(at), cell.ty, false, whose));
    }
    if let Some(at) = element.vars.iter().position(|var| var.name == name.name) {
        let var = &element.vars[at];
        if var.merge.is_some() {
            let message = format!("`{}` is merged, so only ADD and RESET can change it", name.name);
            return Diagnostic::error(code::MERGE_MISUSE, message)
                .at(path.span, "set here")
                .with_label(var.span, "declared MERGE")
                .with_help(format!("write `ADD {}, n;`, or remove MERGE", name.name))
                .refuse(scope.cx);
        }
        return (!scope.cx.is_broken(var.span)).then_some((AssignTarget::Var(at), var.ty, false, whose));
    }
    if element.params.iter().any(|param| param.name == name.name) {
        return no_write(
            scope,
            path.span,
            "a parameter",
            "the chain sets parameters: copy the value into a LET or a VAR",
        );
    }
    if scope.meta(&name.name).is_some()
        || (!scope.is_packet() && super::view::METAS.iter().any(|(known, ..)| *known == name.name))
    {
        return no_write(scope, path.span, "set by the engine", "it is read-only");
    }
    // Reports why the name is not a target: unknown, or not available here.
    scope.resolve(path)?;
    no_write(scope, path.span, "not a column, CALL column or VAR", "SET can change those, and headers")
}

/// Reports a target that cannot be set here.
fn no_write<T>(scope: &mut Scope<'_, '_>, span: Span, label: &str, help: &str) -> Option<T> {
    let message = format!("this cannot be set in {}", scope.words());
    Diagnostic::error(code::WRITE_NOT_HERE, message).at(span, label).with_help(help).refuse(scope.cx)
}

/// Checks the destination of a REDIRECT or MIRROR: a cluster or endpoint.
fn target(scope: &mut Scope<'_, '_>, ast: &ast::Expr) -> Option<Expr> {
    if scope.is_packet() {
        return target_port(scope, ast);
    }
    let expr = scope.expr(ast, Some(Type::Endpoint))?;
    let ty = if matches!(expr.ty, Type::Text(_)) { expr.ty } else { Type::Endpoint };
    let expr = scope.coerce(expr, ty)?;
    if !expr.nullable {
        return Some(expr);
    }
    // NULL is the error "unexpected null" at run time: whether the table has the key is unknown here.
    Some(Expr { fallible: true, ..expr })
}

/// The output: a port name, `'*'` for all other ports of the chain, or `'@hold'` for the element again.
fn target_port(scope: &mut Scope<'_, '_>, ast: &ast::Expr) -> Option<Expr> {
    let expr = scope.typed(ast, Type::Text(None))?;
    if let ExprKind::Const(Value::Bytes(bytes)) = &expr.kind
        && let Ok(name) = core::str::from_utf8(bytes)
        && !is_reserved(name)
        && !scope.cx.ports.iter().any(|known| known == name)
    {
        let strange = NoPort {
            name,
            literal: Some(expr.span),
            otherwise: "name a PORT or a GROUP, or write '*' for all other ports of the chain",
        };
        let diagnostic = scope.cx.no_port(Diagnostic::error, strange).at(expr.span, "unknown");
        return diagnostic.refuse_missing(scope.cx);
    }
    // NULL is the error "unexpected null" at run time, as for calls.
    Some(Expr { fallible: expr.fallible || expr.nullable, ..expr })
}

// ---- variables and actions ---------------------------------------------------------------------------------

/// Finds a merged variable for ADD or RESET. Reports an unknown or ordinary variable.
fn merged_var(scope: &mut Scope<'_, '_>, name: &Ident, verb: &str) -> Option<usize> {
    let element = scope.element;
    let Some(at) = element.vars.iter().position(|var| var.name == name.name) else {
        let message = format!("unknown variable `{}`", name.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message)
            .at(name.span, "unknown")
            .with_help(format!("declare it: `VAR {} U64 MERGE SUM;`", name.name));
        let names = element.vars.iter().map(|var| var.name.as_str());
        return with_nearest(diagnostic, name, names).refuse_missing(scope.cx);
    };
    let var = &element.vars[at];
    if var.merge.is_none() {
        let message = format!("`{}` is not merged, but {verb} is for merged variables", name.name);
        let diagnostic = Diagnostic::error(code::MERGE_MISUSE, message)
            .at(name.span, "an ordinary variable")
            .with_label(var.span, "declared without MERGE")
            .with_help(format!("write `SET {0} = ...`, or declare it `MERGE SUM`", name.name));
        scope.cx.report_unless_broken(var.span, diagnostic);
        return None;
    }
    Some(at)
}

/// Checks an ADD. Without an amount it adds 1.
fn add(
    scope: &mut Scope<'_, '_>,
    target: &Ident,
    amount: Option<&ast::Expr>,
    span: Span,
) -> Option<StmtKind> {
    let var = merged_var(scope, target, "ADD")?;
    let ty = scope.element.vars[var].ty;
    let amount = match amount {
        Some(amount) => {
            let whose = format!("`{}`", target.name);
            scope.value_for(amount, ty, false, &whose)?
        }
        None => constant(Value::Int(1), ty, span),
    };
    Some(StmtKind::Add { var, amount })
}

/// Checks a RESET, which is only possible in ON EVERY.
fn reset(scope: &mut Scope<'_, '_>, target: &Ident) -> Option<StmtKind> {
    let var = merged_var(scope, target, "RESET")?;
    if scope.view != View::Handler(HandlerKind::Every) {
        let message = format!("RESET changes the merged value, which is not available in {}", scope.words());
        let help = "use RESET in ON EVERY";
        return scope.cx.refuse(code::ACTION_NOT_HERE, message, target.span, "reset here", help);
    }
    Some(StmtKind::Reset { var })
}

/// Reports a statement that elements on frames do not have.
fn not_on_packet<T>(scope: &mut Scope<'_, '_>, span: Span, what: &str, help: &str) -> Option<T> {
    let message = format!("{what} is not available on frames");
    scope.cx.refuse(code::NOT_IN_VERSION, message, span, "not available on this layer", help)
}

/// Reports a statement that elements on calls do not have.
fn not_on_rpc<T>(scope: &mut Scope<'_, '_>, span: Span, what: &str, why: &str) -> Option<T> {
    let message = format!("{what} is not available on rpc");
    let help = why;
    scope.cx.refuse(code::NOT_IN_VERSION, message, span, "not available on this layer", help)
}

/// Whether a block always ends with a verdict.
fn ends_handler(body: &[ast::Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        Ast::Verdict(_) => true,
        Ast::If { arms, otherwise } => {
            otherwise.as_ref().is_some_and(|body| ends_handler(body))
                && arms.iter().all(|arm| ends_handler(&arm.body))
        }
        _ => false,
    })
}

/// Whether the element declares a name that RETURNING could refer to.
fn is_known(scope: &Scope<'_, '_>, name: &str) -> bool {
    let element = scope.element;
    element.call.iter().any(|cell| cell.name == name)
        || element.vars.iter().any(|var| var.name == name)
        || element.columns.iter().any(|column| column.name == name)
        || element.params.iter().any(|param| param.name == name)
        || scope.locals.find(name).is_some()
        || super::view::METAS.iter().any(|(known, ..)| *known == name)
}
