//! Checks calls of the functions in the table.

use super::{Call, Environment, article};
use crate::ast;
use crate::check::all;
use crate::check::functions::{Class, FUNCTIONS, Shape, Signature};
use crate::check::scope::with_nearest;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;
use weft_core::Type;

/// Checks a call of a function that the place has.
pub(in crate::check) fn call<E: Environment>(
    env: &mut E,
    call: Call<'_>,
    want: Option<E::Ty>,
) -> Option<E::Value> {
    let lower = call.function.name.to_ascii_lowercase();
    let mut known = FUNCTIONS.iter().filter(|signature| E::has(signature));
    let Some(signature) = known.find(|signature| signature.name() == lower) else {
        return env.unknown_function(call.function);
    };
    let n = call.args.len();
    if !signature.shape.takes(n) {
        return bad_arguments(env, signature, call, &n_given(n));
    }
    let (args, ty) = arguments(env, signature, call, want)?;
    env.function(signature, call, args, ty)
}

/// The arguments of a call by the shape of the function, and the type of the result.
fn arguments<E: Environment>(
    env: &mut E,
    signature: &Signature,
    call: Call<'_>,
    want: Option<E::Ty>,
) -> Option<(Vec<E::Value>, E::Ty)> {
    let typed = |env: &mut E, (ast, ty): (&ast::Expr, &Type)| env.typed(ast, E::Ty::from(*ty));
    let (args, class, result) = match signature.shape {
        Shape::Fixed(params, result) | Shape::Trailing(params, result) => {
            (all(call.args.iter().zip(params).map(|pair| typed(env, pair)))?, Class::Any, Some(result))
        }
        Shape::Same(class, ..) => {
            let args: Vec<&ast::Expr> = call.args.iter().collect();
            (env.unify(&args, want)?, class, None)
        }
        Shape::Each(class, _, _, result) => {
            (all(call.args.iter().map(|arg| env.expr(arg, None)))?, class, Some(result))
        }
        Shape::First(class, params, result) => {
            let first = env.expr(&call.args[0], None);
            let others = all(call.args[1..].iter().zip(params).map(|pair| typed(env, pair)));
            ([vec![first?], others?].concat(), class, result)
        }
        Shape::Convert(to) => (vec![env.expr(&call.args[0], None)?], Class::Any, Some(to)),
        Shape::Words(..) => return Some((Vec::new(), Type::Bool.into())),
    };
    let n = if let Shape::Each(..) = signature.shape { args.len() } else { args.len().min(1) };
    for arg in &args[..n] {
        if class == Class::Ordered {
            env.check_ordered(arg)?;
        } else if !E::is(E::ty(arg), class) {
            let label = format!("this is {}", article(E::ty(arg)));
            let call = Call { span: E::span(arg), ..call };
            return bad_arguments(env, signature, call, &label);
        }
    }
    let ty = result.map_or_else(|| E::ty(&args[0]), E::Ty::from);
    Some((args, ty))
}

impl Shape {
    /// Whether a function takes this number of arguments.
    fn takes(self, n: usize) -> bool {
        let (least, most) = match self {
            Self::Fixed(params, _) => (params.len(), params.len()),
            Self::Trailing(params, _) => (params.len() - 1, params.len()),
            Self::Convert(_) => (1, 1),
            Self::Same(_, least, most) | Self::Each(_, least, most, _) | Self::Words(least, most) => {
                (least, most)
            }
            Self::First(_, params, _) => (params.len() + 1, params.len() + 1),
        };
        (least..=most).contains(&n)
    }
}

/// Reports wrong arguments, and shows the signature.
pub(in crate::check) fn bad_arguments<E: Environment, T>(
    env: &mut E,
    signature: &Signature,
    call: Call<'_>,
    label: &str,
) -> Option<T> {
    let help = format!("it is `{}`: {}", signature.text, signature.doc);
    let diagnostic = wrong_arguments(E::CALL_CODES.0, signature.name(), (call.span, label), help);
    env.report(diagnostic);
    None
}

/// The diagnostic for wrong arguments of a function.
pub(in crate::check) fn wrong_arguments(
    code: Code,
    name: &str,
    (span, label): (Span, &str),
    help: String,
) -> Diagnostic {
    Diagnostic::error(code, format!("`{name}` does not take these arguments")).at(span, label).with_help(help)
}

/// `2 arguments given`
pub(in crate::check) fn n_given(n: usize) -> String {
    format!("{n} argument{} given", if n == 1 { "" } else { "s" })
}

/// Reports an unknown function, with the known ones.
pub(super) fn unknown_function<E: Environment, T>(env: &mut E, name: &ast::Ident) -> Option<T> {
    let known = FUNCTIONS.iter().filter(|signature| E::has(signature));
    let known: Vec<&str> = known.map(Signature::name).collect();
    let diagnostic = Diagnostic::error(E::CALL_CODES.1, format!("there is no function `{}`", name.name))
        .at(name.span, "unknown")
        .with_note(format!("there are: {}", known.join(", ")));
    env.report(with_nearest(diagnostic, name, known));
    None
}
