//! TOML to a file's type, with every fault of shape at once: what is faulty is noted, taken out,
//! and the rest is read again.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::{Table, Value};

use crate::workload::{Fault, Faults};

/// More than anyone reads.
const MOST: usize = 50;

pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Faults> {
    let mut faults = Faults::default();
    let mut table = match text.parse::<Table>() {
        Ok(table) => table,
        Err(error) => {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
            let line = before.matches('\n').count() + 1;
            faults.add_line(line, one_line(error.message()));
            return Err(faults);
        }
    };
    for _ in 0..MOST {
        let attempt: Result<T, _> = serde_path_to_error::deserialize(table.clone());
        let error = match attempt {
            Ok(file) => return faults.or(file),
            Err(error) => error,
        };
        let path = error.path().to_string();
        // What is now missing there may be what was just taken out.
        let within =
            |fault: &Fault| fault.path.strip_prefix(&path).is_some_and(|r| r.starts_with('.'));
        if !faults.all().iter().any(within) {
            faults.add(&path, one_line(error.inner().message()));
        }
        let path: Vec<_> = error.path().iter().cloned().collect();
        if !take_out(&mut table, &path) {
            break;
        }
    }
    Err(faults)
}

fn one_line(message: &str) -> String {
    message.trim().replace('`', "\"").replace('\n', ", ")
}

/// Takes the value at a path out; false where there is none.
fn take_out(table: &mut Table, path: &[Segment]) -> bool {
    let Some((Segment::Map { key }, rest)) = path.split_first() else { return false };
    if rest.is_empty() {
        return table.remove(key).is_some();
    }
    let Some(value) = table.get_mut(key) else { return false };
    if take_out_of(value, rest) {
        return true;
    }
    // Something within that cannot be taken out alone, such as the name of a variant.
    table.remove(key).is_some()
}

fn take_out_of(value: &mut Value, path: &[Segment]) -> bool {
    match (value, path) {
        (Value::Table(table), _) => take_out(table, path),
        (Value::Array(list), [Segment::Seq { index }, rest @ ..]) => {
            if let Some(one) = list.get_mut(*index)
                && !rest.is_empty()
                && take_out_of(one, rest)
            {
                return true;
            }
            let there = *index < list.len();
            if there {
                list.remove(*index);
            }
            there
        }
        _ => false,
    }
}
