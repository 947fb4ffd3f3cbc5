//! What a panic in a library or a driver says.

use std::any::Any;

/// Its message, if it has one.
pub(crate) fn reason_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it gave no reason").to_owned()
}
