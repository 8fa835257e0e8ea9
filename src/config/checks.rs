//! What is asked of single values, and where their faults gather.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::model::Warning;
use super::read::Faults;
use super::units::{Size, Span, show_size};
use super::{ConfigError, Secret, Sources};

/// Where faults and warnings of one compilation gather.
pub(super) struct Compiler<'a> {
    pub(super) faults: Faults,
    /// Faults of other files than the main one.
    pub(super) others: Vec<ConfigError>,
    pub(super) warnings: Vec<Warning>,
    pub(super) sources: &'a Sources,
}

impl Compiler<'_> {
    pub(super) fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(Warning { path: path.to_owned(), message: message.into() });
    }

    /// A text that must be there and not empty.
    pub(super) fn required(&mut self, path: &str, written: Option<&str>) -> Option<Arc<str>> {
        match written.map(str::trim) {
            Some(text) if !text.is_empty() => return Some(text.into()),
            Some(_) => self.faults.add(path, "is empty", None),
            None => self.faults.add(path, "is missing", None),
        }
        None
    }

    /// A secret from a file or the environment, by the keys `path_file` and `path_env`.
    pub(super) fn secret(
        &mut self,
        path: &str,
        file: Option<&str>,
        env: Option<&str>,
    ) -> Option<Secret> {
        let (key, found) = match (file, env) {
            (None, None) => return None,
            (Some(_), Some(_)) => {
                let message = "stands beside its _file key; one of them is enough";
                self.faults.add(&format!("{path}_env"), message, None);
                return None;
            }
            (Some(file), None) => {
                let text = self.sources.files.get(file).cloned();
                let text = text.unwrap_or_else(|| Err("was not read".to_owned()));
                (format!("{path}_file"), text.map_err(|why| format!("{file:?} {why}")))
            }
            (None, Some(name)) => {
                let value = self.sources.env.get(name).cloned().flatten();
                (format!("{path}_env"), value.ok_or_else(|| format!("{name} is not set")))
            }
        };
        let found = found.map(|text| Secret::new(&text));
        match found {
            Ok(secret) if secret.reveal().is_empty() => {
                self.faults.add(&key, "leads to an empty secret", None);
            }
            Ok(secret) if !secret.reveal().bytes().all(|byte| byte.is_ascii_graphic()) => {
                let allowed = Some("printable ASCII on one line");
                self.faults.add(&key, "leads to a secret that no header can carry", allowed);
            }
            Ok(secret) => return Some(secret),
            Err(why) => self.faults.add(&key, why, None),
        }
        None
    }

    /// A duration above zero.
    pub(super) fn span(
        &mut self,
        path: &str,
        written: Option<Span>,
        default: Duration,
    ) -> Duration {
        match written {
            Some(Span(Duration::ZERO)) => {
                self.faults.add(path, "is zero", Some("more than 0s"));
                default
            }
            Some(Span(duration)) => duration,
            None => default,
        }
    }

    /// A whole number within a range.
    pub(super) fn count(
        &mut self,
        path: &str,
        written: Option<i64>,
        default: u32,
        range: RangeInclusive<u32>,
    ) -> u32 {
        let Some(number) = written else {
            return default;
        };
        if let Some(number) = u32::try_from(number).ok().filter(|number| range.contains(number)) {
            return number;
        }
        let allowed = format!("{} to {}", range.start(), range.end());
        self.faults.add(path, format!("{number} is out of range"), Some(&allowed));
        default
    }

    /// A whole number within a range, where one is written.
    pub(super) fn number(
        &mut self,
        path: &str,
        written: Option<i64>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let number = written?;
        let found = u64::try_from(number).ok().filter(|number| range.contains(number));
        if found.is_none() {
            let allowed = format!("{} to {}", range.start(), range.end());
            self.faults.add(path, format!("{number} is out of range"), Some(&allowed));
        }
        found
    }

    /// A number of bytes within a range.
    pub(super) fn size(
        &mut self,
        path: &str,
        written: Option<Size>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let Some(Size(bytes)) = written else {
            return default;
        };
        if range.contains(&bytes) {
            return bytes;
        }
        let allowed = format!("{} to {}", show_size(*range.start()), show_size(*range.end()));
        self.faults.add(path, format!("{} is out of range", show_size(bytes)), Some(&allowed));
        default
    }
}

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
