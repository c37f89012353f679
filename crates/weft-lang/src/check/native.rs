//! Checks native functions: declarations, function parameters, and calls.

use weft_core::native::{Effect, Info, MAGLEV_SLOTS_MAX, NATIVES, Native, NativeCost, Param};
use weft_core::{Type, Value};

use super::expr::{Environment, n_given};
use super::functions;
use super::scope::Scope;
use super::{Cx, empty_element};
use super::{all, binding};
use crate::ast::{self, ExprKind as Ast, FunctionEffect, Ident};
use crate::check::settings::settings;
use crate::check::suggest::article;
use crate::check::suggest::with_nearest;
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{self, Expr, ExprKind, Function, FunctionType, NativeFunction, NativeRef, Setting};
use crate::source::Span;
use crate::types;

/// The maximum length of a regular expression, and the maximum total length of a text list.
pub const PATTERN_BYTES_MAX: usize = 4096;
/// The maximum declared cost: one second.
const COST_NS_MAX: i64 = 1_000_000_000;

// ---- declarations ----------------------------------------------------------------------------------------------

/// Checks `CREATE FUNCTION`; None if it has an error.
pub(super) fn declared(cx: &mut Cx<'_>, ast: &ast::FunctionItem) -> Option<NativeFunction> {
    if is_taken(&ast.name.name) {
        let message = format!("`{}` is a built-in function", ast.name.name);
        let help = "choose another name";
        return cx.refuse(code::DUPLICATE_NAME, message, ast.name.span, "name already used", help);
    }
    let Ok(native) = ast.native.value.parse::<Native>() else {
        let message = format!("there is no native function `{}`", ast.native.value);
        let diagnostic = Diagnostic::error(code::UNKNOWN_NATIVE, message).at(ast.native.span, "unknown");
        let names = NATIVES.iter().map(|info| info.name);
        let diagnostic = match crate::nearest::nearest(&ast.native.value, names) {
            Some(near) => {
                diagnostic.with_help(format!("write '{near}'")).with_fix(ast.native.span, format!("'{near}'"))
            }
            None => {
                let keyed = NATIVES.iter().filter(|info| !info.options.is_empty()).map(|info| info.name);
                diagnostic
                    .with_note(format!("functions with options: {}", keyed.collect::<Vec<_>>().join(", ")))
            }
        };
        return diagnostic.refuse(cx);
    };
    let info = native.info();
    let ty = function_type(cx, &ast.ty)?;
    let mut fits = check_type(cx, info, &ty, ast);
    let options = options(cx, info, ast);
    fits &= check_options(cx, info, &options, ast);
    fits &= check_effect(cx, info, ast);
    let cost = cost(cx, info, ast);
    if !fits {
        return None;
    }
    let effect = ast.effect.map_or(info.effect, |(effect, _)| match effect {
        FunctionEffect::Clock => Effect::Clock,
        FunctionEffect::Random if info.effect != Effect::Nonce => Effect::Random,
        _ => info.effect,
    });
    let name = ast.name.name.clone();
    Some(NativeFunction { name, native, ty, options, effect, cost: cost?, inverse: None, span: ast.span })
}

/// Resolves the functions in `INVERSE OF`.
pub(super) fn inverses(cx: &mut Cx<'_>, items: &[(usize, &ast::FunctionItem)]) {
    for (at, ast) in items {
        let Some(name) = &ast.inverse_of else { continue };
        let Some(of) = cx.functions.iter().position(|known| known.name == name.name) else {
            let names: Vec<String> = cx.functions.iter().map(|known| known.name.clone()).collect();
            let message = format!("function `{}` is not declared", name.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_FUNCTION, message).at(name.span, "unknown");
            cx.report_missing(with_nearest(diagnostic, name, names.iter().map(String::as_str)));
            continue;
        };
        let (function, other) = (&cx.functions[*at], &cx.functions[of]);
        let keys = |function: &NativeFunction| -> Vec<(&'static str, Value)> {
            let keys = function.options.iter().filter(|option| option.name.starts_with("key_"));
            keys.map(|option| (option.name, option.value.clone())).collect()
        };
        let why = match function.native.info().inverse {
            None => format!("`{}` has no inverse", function.native.name()),
            Some(native) if native != other.native => {
                format!(
                    "`{}` is the inverse of `{}`, not of `{}`",
                    function.native.name(),
                    native.name(),
                    other.native.name()
                )
            }
            Some(_) if keys(function) != keys(other) => "the keys differ".to_owned(),
            Some(_) => {
                cx.functions[*at].inverse = Some(of);
                continue;
            }
        };
        let message = format!("`{}` is not the inverse of `{}`", function.name, name.name);
        cx.report(Diagnostic::error(code::OVERCLAIM, message).at(name.span, why));
    }
}

fn is_taken(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.parse::<Native>().is_ok()
        || functions::find(&lower).is_some()
        || functions::AGGREGATES.contains(&lower.as_str())
}

/// Resolves the type of a function.
pub(super) fn function_type(cx: &mut Cx<'_>, ast: &ast::FunctionType) -> Option<FunctionType> {
    let params: Vec<Option<Type>> = ast.params.iter().map(|param| cx.type_expr(param)).collect();
    let returns = cx.type_expr(&ast.returns)?;
    let params = params.into_iter().collect::<Option<_>>()?;
    Some(FunctionType { params, returns, nullable: ast.returns.nullable })
}

/// Checks the declared type of a native function. False if it differs, which is reported.
fn check_type(cx: &mut Cx<'_>, info: &Info, ty: &FunctionType, ast: &ast::FunctionItem) -> bool {
    let params: Vec<Param> = info.params.iter().copied().filter(|param| !param.is_constant()).collect();
    let is_misfit = if info.params.len() != params.len() {
        Some((ast.native.span, "it takes constant arguments and is called by its own name".to_owned()))
    } else if params.len() != ty.params.len() {
        Some((ast.ty.span, format!("{} parameters", ty.params.len())))
    } else if let Some(at) = (0..params.len()).find(|&at| !accepts(params[at], ty.params[at])) {
        Some((ast.ty.params[at].span, format!("it takes {}", params[at].text())))
    } else if ty.returns != info.result || ty.nullable != info.nullable {
        let null = if info.nullable { "?" } else { "" };
        Some((ast.ty.returns.span, format!("it returns {}{null}", info.result)))
    } else {
        None
    };
    let Some((span, label)) = is_misfit else { return true };
    let message = format!("the native function `{}` is not of this type", info.name);
    let diagnostic = Diagnostic::error(code::NATIVE_MISMATCH, message)
        .at(span, label)
        .with_note(format!("it is `{}`", info.signature()));
    cx.report(diagnostic);
    false
}

/// Whether a parameter accepts values of this type.
fn accepts(param: Param, ty: Type) -> bool {
    match param {
        Param::Data => matches!(ty, Type::Text(None) | Type::Bytes(None)),
        Param::Text => ty == Type::Text(None),
        Param::Bytes => ty == Type::Bytes(None),
        Param::Int => ty == Type::Int(64),
        Param::Address => ty == Type::IpAddr,
        Param::Scalar => matches!(ty, Type::Text(None) | Type::Bool | Type::Int(64) | Type::F64),
        Param::Pattern | Param::Pointer | Param::Constant | Param::Constants => false,
    }
}

/// Reads the options of a native function.
fn options(cx: &mut Cx<'_>, info: &Info, ast: &ast::FunctionItem) -> Vec<Setting> {
    let known: Vec<(&'static str, Type)> =
        info.options.iter().map(|option| (option.name, option.ty)).collect();
    settings(cx, &ast.options, &known, "function")
}

/// Checks the value of one option, and that there is exactly one key.
fn check_options(cx: &mut Cx<'_>, info: &Info, options: &[Setting], ast: &ast::FunctionItem) -> bool {
    let mut fits = true;
    for option in options {
        let help = match (&option.value, option.name) {
            (Value::Int(level), "level") => {
                let most = if info.native == Native::Zstd { 19 } else { 9 };
                (*level > most).then(|| format!("`{}` supports levels 1 to {most}", info.name))
            }
            (Value::Bytes(name), "algorithm") => {
                let is_known = [&b"HS256"[..], b"RS256", b"ES256"].contains(&name.as_slice());
                (!is_known).then(|| "write 'HS256', 'RS256' or 'ES256'".to_owned())
            }
            (Value::Bytes(name), "key_env") => {
                let is_name =
                    !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
                let help = "write the name of an environment variable; the key itself does not belong in the program";
                (!is_name).then(|| help.to_owned())
            }
            _ => None,
        };
        if let Some(help) = help {
            let message = format!("`{}` does not accept this value of `{}`", info.name, option.name);
            cx.report(Diagnostic::error(code::FUNCTION_OPTION, message).at(option.span, "").with_help(help));
            fits = false;
        }
    }
    // An invalid option may be the missing one.
    if options.len() != ast.options.len() {
        return false;
    }
    let has = |name: &str| ast.options.iter().any(|option| option.name.name == name);
    let misses_algorithm = info.native == Native::JwtVerify && !has("algorithm");
    let (n_keys, name) = (usize::from(has("key_file")) + usize::from(has("key_env")), &ast.name.name);
    let fault = match n_keys {
        0 if info.needs_key => {
            Some(("names none", "write `WITH (key_file = '/run/secrets/key')` or `WITH (key_env = 'NAME')`"))
        }
        2 => Some(("names two keys", "keep `key_file` or `key_env`")),
        _ => None,
    };
    if let Some((what, help)) = fault {
        let message = format!("`{}` needs exactly one key, but `{name}` {what}", info.name);
        cx.report(Diagnostic::error(code::KEY_NOT_NAMED, message).at(ast.native.span, "").with_help(help));
        fits = false;
    }
    if misses_algorithm {
        let message = format!("`{name}` does not name the signature algorithm of its tokens");
        let diagnostic = Diagnostic::error(code::MISSING_CLAUSE, message)
            .at(ast.native.span, "the token's own header is not trusted")
            .with_help("write `WITH (algorithm = 'RS256', ...)`; 'HS256' and 'ES256' are supported too");
        cx.report(diagnostic);
        fits = false;
    }
    fits
}

/// Checks that the declared effect is not weaker than the real one.
fn check_effect(cx: &mut Cx<'_>, info: &Info, ast: &ast::FunctionItem) -> bool {
    let Some((effect, span)) = ast.effect else { return true };
    let is_honest = match effect {
        FunctionEffect::Pure => info.effect == Effect::Pure,
        FunctionEffect::Random => matches!(info.effect, Effect::Pure | Effect::Random | Effect::Nonce),
        FunctionEffect::Clock => matches!(info.effect, Effect::Pure | Effect::Clock),
    };
    if !is_honest {
        let message = format!("`{}` has a stronger effect than this EFFECT declares", info.name);
        let word = info.effect.word();
        let diagnostic = Diagnostic::error(code::OVERCLAIM, message)
            .at(span, format!("actual effect: {word}"))
            .with_help(format!("write `EFFECT {word}`, or remove the clause"))
            .with_fix(span, format!("EFFECT {word}"));
        cx.report(diagnostic);
    }
    is_honest
}

/// Returns the declared COST, or the default of the native function.
fn cost(cx: &mut Cx<'_>, info: &Info, ast: &ast::FunctionItem) -> Option<NativeCost> {
    let Some(cost) = &ast.cost else { return Some(info.cost) };
    let (element, mut n_rand) = (empty_element(), 0);
    let mut scope = Scope::new(cx, &element, &[], View::Constant, &mut n_rand);
    let value = scope.value_for(cost, Type::Int(64), false, "COST")?;
    match cx.folded(&value, &[])? {
        Value::Int(ns @ 0..=COST_NS_MAX) => Some(NativeCost { base_ns: ns as u32, ns_per_kib: 0 }),
        _ => {
            let message = format!("COST must be 0 to {COST_NS_MAX} nanoseconds");
            Diagnostic::error(code::OVER_LIMIT, message).at(cost.span, "outside the limits").refuse(cx)
        }
    }
}

// ---- function parameters -----------------------------------------------------------------------------------------

/// Finds the function that an argument or a default names, as the value of a parameter of this type.
pub(super) fn function_argument(
    cx: &mut Cx<'_>,
    ast: &ast::Expr,
    ty: &FunctionType,
    name: &str,
) -> Option<Value> {
    let named = match &ast.kind {
        Ast::Path(path) => path.as_ident(),
        _ => None,
    };
    let Some(named) = named else {
        let message = format!("parameter `{name}` takes a function");
        let help = "write the name of a function, without parentheses";
        return cx.refuse(code::NOT_A_FUNCTION, message, ast.span, "not a function name", help);
    };
    let at = find(cx, named)?;
    let function = &cx.functions[at];
    if function.ty != *ty && !fits_type(function, ty) {
        let message = format!("`{}` does not have the type of parameter `{name}`", named.name);
        return Diagnostic::error(code::NATIVE_MISMATCH, message)
            .at(ast.span, text_of(&function.ty))
            .with_note(format!("expected {}", text_of(ty)))
            .refuse(cx);
    }
    Some(Value::Int(at as i64))
}

/// A function used under its own name has every type that it accepts.
fn fits_type(function: &NativeFunction, ty: &FunctionType) -> bool {
    let info = function.native.info();
    function.name == info.name
        && info.params.len() == ty.params.len()
        && info.params.iter().zip(&ty.params).all(|(param, ty)| accepts(*param, *ty))
        && (ty.returns, ty.nullable) == (info.result, info.nullable)
}

/// How a type is declared.
pub(super) fn text_of(ty: &FunctionType) -> String {
    let params: Vec<String> = ty.params.iter().map(ToString::to_string).collect();
    format!("({}) RETURNS {}{}", params.join(", "), ty.returns, if ty.nullable { "?" } else { "" })
}

/// Finds the index of a declared function, or of a native one by its own name, which is then recorded as declared.
fn find(cx: &mut Cx<'_>, name: &Ident) -> Option<usize> {
    if let Some(at) = cx.functions.iter().position(|known| known.name == name.name) {
        return Some(at);
    }
    let native: Option<Native> = name.name.to_ascii_lowercase().parse().ok();
    let own = native.map(Native::info).filter(|info| !info.needs_key);
    let Some(info) = own.filter(|info| !info.params.iter().any(|param| param.is_constant())) else {
        let names: Vec<String> = cx.functions.iter().map(|known| known.name.clone()).collect();
        let message = format!("no function `{}` can be passed as a parameter", name.name);
        let mut diagnostic = Diagnostic::error(code::UNKNOWN_FUNCTION, message).at(name.span, "unknown");
        if native.is_some_and(|native| native.info().needs_key) {
            diagnostic = diagnostic.with_help(declare_help(native?.info()));
        } else if native.is_some() {
            diagnostic = diagnostic.with_help("it takes constant arguments and can only be called");
        }
        let known = names.iter().map(String::as_str).chain(NATIVES.iter().map(|info| info.name));
        return with_nearest(diagnostic, name, known).refuse_missing(cx);
    };
    let first = |param: &Param| match param {
        Param::Int => Type::Int(64),
        Param::Address => Type::IpAddr,
        Param::Text | Param::Scalar => Type::Text(None),
        _ => Type::Bytes(None),
    };
    let params = info.params.iter().map(first).collect();
    cx.functions.push(NativeFunction {
        name: info.name.to_owned(),
        native: info.native,
        ty: FunctionType { params, returns: info.result, nullable: info.nullable },
        options: Vec::new(),
        effect: info.effect,
        cost: info.cost,
        inverse: None,
        span: name.span,
    });
    Some(cx.functions.len() - 1)
}

/// Formats a declaration for a native function that must be declared first.
fn declare_help(info: &Info) -> String {
    let params: Vec<&str> =
        info.params.iter().map(|param| if *param == Param::Text { "TEXT" } else { "BYTES" }).collect();
    let algorithm = if info.native == Native::JwtVerify { "algorithm = 'RS256', " } else { "" };
    let null = if info.nullable { "?" } else { "" };
    format!(
        "declare it under your own name: `CREATE FUNCTION my_{} ({}) RETURNS {}{null} AS NATIVE '{}' WITH \
         ({algorithm}key_file = '...');`",
        info.name,
        params.join(", "),
        info.result,
        info.name,
    )
}

// ---- calls -----------------------------------------------------------------------------------------------------

impl Scope<'_, '_> {
    pub(super) fn next_call_site(&mut self) -> u32 {
        *self.n_rand += 1;
        *self.n_rand - 1
    }
}

/// Checks a call of a native function. The outer None: `name` is not one.
pub(super) fn native_call(
    scope: &mut Scope<'_, '_>,
    name: &Ident,
    args: &[ast::Expr],
    span: Span,
) -> Option<Option<Expr>> {
    let param = scope.element.params.iter().position(|param| param.name == name.name);
    if let Some((at, ty)) = param.and_then(|at| Some((at, scope.element.params[at].function.clone()?))) {
        return Some(typed_call(scope, name, (NativeRef::Param(at), &ty, true), args, span));
    }
    if let Some(at) = scope.cx.functions.iter().position(|known| known.name == name.name) {
        let function = &scope.cx.functions[at];
        let info = function.native.info();
        // A function passed under its own name is called under that name.
        if function.name != info.name {
            let (ty, fails) = (function.ty.clone(), info.fails.is_some());
            return Some(typed_call(scope, name, (NativeRef::Declared(at), &ty, fails), args, span));
        }
    }
    let info = name.name.to_ascii_lowercase().parse::<Native>().ok()?.info();
    if info.needs_key {
        let message = format!("`{}` needs a key, so it must be declared first", info.name);
        scope.cx.fault(code::KEY_NOT_NAMED, message, name.span, "which key?", declare_help(info));
        return Some(None);
    }
    Some(own_call(scope, info, args, span))
}

/// Checks a call of a function whose type is declared.
fn typed_call(
    scope: &mut Scope<'_, '_>,
    name: &Ident,
    (function, ty, fails): (NativeRef, &FunctionType, bool),
    args: &[ast::Expr],
    span: Span,
) -> Option<Expr> {
    if is_before_calls(scope, span) {
        return None;
    }
    if args.len() != ty.params.len() {
        let message = format!("`{}` does not take these arguments", name.name);
        let help = format!("it is declared as `{} {}`", name.name, text_of(ty));
        return scope.cx.refuse(code::BAD_ARGUMENTS, message, span, n_given(args.len()), help);
    }
    let args = all(args.iter().zip(&ty.params).map(|(arg, param)| scope.typed(arg, *param)));
    let is_pure = match function {
        NativeRef::Declared(at) => scope.cx.functions[at].effect == Effect::Pure,
        NativeRef::Own(_) | NativeRef::Param(_) => true,
    };
    if scope.bound.is_some() && !is_pure {
        return binding::draws(scope, &name.name, span);
    }
    let args = args?;
    let site = scope.next_call_site();
    Some(native_expr((function, site), args, (ty.returns, ty.nullable, fails), span))
}

/// Checks a call of a native function by its own name.
fn own_call(scope: &mut Scope<'_, '_>, info: &'static Info, args: &[ast::Expr], span: Span) -> Option<Expr> {
    if is_before_calls(scope, span) {
        return None;
    }
    let is_list = info.params.last() == Some(&Param::Constants);
    let fits = if is_list { args.len() >= info.params.len() } else { args.len() == info.params.len() };
    if !fits {
        let message = format!("`{}` does not take these arguments", info.name);
        let help = format!("it is `{}`: {}", info.signature(), info.doc);
        return scope.cx.refuse(code::BAD_ARGUMENTS, message, span, n_given(args.len()), help);
    }
    let params = info.params.iter().copied().chain(std::iter::repeat(Param::Constants));
    let args = all(args.iter().zip(params).map(|(arg, param)| argument(scope, info, arg, param)))?;
    if info.native == Native::MatchesAny && !fits_together(scope, &args[1..], span) {
        return None;
    }
    if scope.bound.is_some() && info.effect != Effect::Pure {
        return binding::draws(scope, info.name, span);
    }
    let site = if info.effect == Effect::Pure { 0 } else { scope.next_call_site() };
    let ends = (info.result, info.nullable, info.fails.is_some());
    Some(native_expr((NativeRef::Own(info.native), site), args, ends, span))
}

/// Calls are not possible in constants.
fn is_before_calls(scope: &mut Scope<'_, '_>, span: Span) -> bool {
    let is_before = matches!(scope.view, View::Constant | View::Row);
    if is_before {
        scope.not_constant::<()>(span, "a native function can only be called in a handler");
    }
    is_before
}

/// Checks an argument of a native function.
fn argument(scope: &mut Scope<'_, '_>, info: &Info, ast: &ast::Expr, param: Param) -> Option<Expr> {
    match param {
        Param::Text => scope.typed(ast, Type::Text(None)),
        Param::Bytes => scope.typed(ast, Type::Bytes(None)),
        Param::Address => scope.typed(ast, Type::IpAddr),
        Param::Int => {
            let typed = scope.typed(ast, Type::Int(64))?;
            check_slots(scope, info, &typed).then_some(typed)
        }
        Param::Data => {
            let typed = scope.expr(ast, Some(Type::Text(None)))?;
            let is_data = matches!(typed.ty, Type::Text(_) | Type::Bytes(_));
            if is_data { Some(typed) } else { wrong_argument_type(scope, info, &typed, param) }
        }
        Param::Scalar => {
            let typed = scope.expr(ast, None)?;
            match typed.ty {
                Type::Text(_) | Type::Bool | Type::F64 => Some(typed),
                ty if types::is_integer(ty) && types::widens(ty, Type::Int(64)) || ty == Type::Int(64) => {
                    scope.coerce(typed, Type::Int(64))
                }
                _ => wrong_argument_type(scope, info, &typed, param),
            }
        }
        Param::Pattern | Param::Pointer | Param::Constant | Param::Constants => {
            constant_arg(scope, ast, param)
        }
    }
}

/// Reports an argument of the wrong type.
fn wrong_argument_type<T>(scope: &mut Scope<'_, '_>, info: &Info, typed: &Expr, param: Param) -> Option<T> {
    let message = format!("`{}` expects {} here, but this is {}", info.name, param.text(), article(typed.ty));
    let help = format!("it is `{}`: {}", info.signature(), info.doc);
    scope.cx.refuse(code::BAD_ARGUMENTS, message, typed.span, typed.ty.to_string(), help)
}

/// Checks the constant size of a Maglev table.
fn check_slots(scope: &mut Scope<'_, '_>, info: &Info, n: &Expr) -> bool {
    let ExprKind::Const(Value::Int(value)) = n.kind else { return true };
    let is_slot = info.native != Native::MaglevSlot || (1..=MAGLEV_SLOTS_MAX).contains(&value);
    if !is_slot {
        let message = format!("a Maglev table must have 1 to {MAGLEV_SLOTS_MAX} slots");
        scope.cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(n.span, "outside the limits"));
    }
    is_slot
}

/// Checks a compile-time text: a literal, which is checked here, or a parameter.
fn constant_arg(scope: &mut Scope<'_, '_>, ast: &ast::Expr, param: Param) -> Option<Expr> {
    let typed = scope.typed(ast, Type::Text(None))?;
    match (&typed.kind, &ast.kind) {
        (ExprKind::Param(_), _) if !typed.nullable => Some(typed),
        (ExprKind::Const(Value::Bytes(_)), Ast::Str(text)) => {
            let fault = match param {
                Param::Pattern => bad_pattern(text),
                Param::Pointer => bad_pointer(text),
                _ => (text.is_empty() && param == Param::Constants)
                    .then(|| ("an empty text occurs in every text".to_owned(), 0..0)),
            };
            let Some((why, at)) = fault else { return Some(typed) };
            let what = if param == Param::Pattern { "regular expression" } else { "constant" };
            let what = if param == Param::Pointer { "JSON pointer" } else { what };
            let message = format!("invalid {what}: {why}");
            let span = within(scope.cx.sources.slice(ast.span), ast.span, at);
            let diagnostic = Diagnostic::error(code::BAD_PATTERN, message).at(span, "here");
            let diagnostic = match param {
                Param::Pointer => diagnostic.with_help(
                    "write '/user/id'; '' selects the whole document, `~1` stands for `/` in a \
                        name, `~0` for `~`",
                ),
                Param::Pattern => diagnostic.with_help("escape special characters with `\\`"),
                _ => diagnostic,
            };
            diagnostic.refuse(scope.cx)
        }
        _ => scope
            .not_constant(ast.span, "use a literal text or a parameter: it is compiled once for all tuples"),
    }
}

/// Checks the total length of all search texts.
fn fits_together(scope: &mut Scope<'_, '_>, texts: &[Expr], span: Span) -> bool {
    let bytes = texts.iter().map(|text| match &text.kind {
        ExprKind::Const(Value::Bytes(text)) => text.len(),
        _ => 0,
    });
    let fits = bytes.sum::<usize>() <= PATTERN_BYTES_MAX;
    if !fits {
        let message = format!("all search texts together must not exceed {PATTERN_BYTES_MAX} bytes");
        scope.cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(span, "too long"));
    }
    fits
}

/// Builds the call of a native function. A function that makes bytes may fail for lack of scratch.
fn native_expr(
    (function, site): (NativeRef, u32),
    args: Vec<Expr>,
    (ty, nullable, fails): (Type, bool, bool),
    span: Span,
) -> Expr {
    let nullable = nullable || args.iter().any(|arg| arg.nullable);
    let makes = matches!(ty, Type::Text(_) | Type::Bytes(_));
    // What it makes may find no room.
    let fallible = fails || makes || args.iter().any(|arg| arg.fallible);
    let function = Function::Native(function, site);
    Expr { kind: ExprKind::Function { function, args }, ty, nullable, fallible, span }
}

/// The error in a regular expression, and its range.
fn bad_pattern(pattern: &str) -> Option<(String, core::ops::Range<usize>)> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Some((format!("it has more than {PATTERN_BYTES_MAX} bytes"), 0..0));
    }
    let (why, span) = match regex_syntax::parse(pattern) {
        Ok(_) => return None,
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), *error.span()),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), *error.span()),
        Err(other) => return Some((other.to_string(), 0..0)),
    };
    Some((why, span.start.offset..span.end.offset))
}

/// The error in a JSON pointer, and its range.
fn bad_pointer(pointer: &str) -> Option<(String, core::ops::Range<usize>)> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Some(("it must start with `/`".to_owned(), 0..1));
    }
    let tilde = pointer
        .match_indices('~')
        .find(|(at, _)| !matches!(pointer.as_bytes().get(at + 1), Some(b'0' | b'1')));
    tilde.map(|(at, _)| ("`~` must be followed by `0` or `1`".to_owned(), at..at + 1))
}

/// The span of a part of a literal with the source `text`: accounts for quotes and doubled quotes.
fn within(text: &str, span: Span, part: core::ops::Range<usize>) -> Span {
    let mut at = 0;
    let mut places = Vec::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((source, c)) = chars.next() {
        places.push((at, source));
        at += c.len_utf8();
        if c == '\'' {
            chars.next();
        }
    }
    let place = |wanted: usize| {
        let known = places.iter().rfind(|(at, _)| *at <= wanted).map_or(1, |(_, source)| *source);
        span.start + known as u32
    };
    let (start, end) = (place(part.start), place(part.end));
    if part.is_empty() { span } else { Span::new(span.file, start, end.max(start + 1).min(span.end)) }
}

/// Reports a function parameter that is used as a value.
pub(super) fn not_a_value(cx: &mut Cx<'_>, param: &hir::Param, name: &Ident) {
    let message = format!("`{}` is a function", param.name);
    let help = format!("call it: `{}(...)`", param.name);
    cx.fault(code::NOT_A_FUNCTION, message, name.span, "expected a value", help);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    #[test]
    fn literal_offset_counts_quotes() {
        // An underline at the wrong character hides the error.
        let text = "'it''s (x'";
        let span = Span::new(FileId(0), 100, 100 + text.len() as u32);
        // In the value `it's (x` the parenthesis is byte 5; in the source it is byte 7.
        assert_eq!(within(text, span, 5..6), Span::new(FileId(0), 107, 108));
        assert_eq!(within(text, span, 0..0), span);
        assert_eq!(bad_pattern("it's (x").map(|(_, at)| at), Some(5..6));
    }

    #[test]
    fn json_pointers_follow_rfc() {
        // RFC 6901 section 3: exactly the texts rejected here are invalid.
        for pointer in ["", "/", "/a/0", "/a~1b/~0"] {
            assert_eq!(bad_pointer(pointer), None, "{pointer}");
        }
        assert_eq!(bad_pointer("a").map(|(_, at)| at), Some(0..1));
        assert_eq!(bad_pointer("/a~").map(|(_, at)| at), Some(2..3));
        assert_eq!(bad_pointer("/~2").map(|(_, at)| at), Some(1..2));
    }
}
