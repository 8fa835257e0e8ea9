//! The process as the kernel sees it: the standard `process_*` metrics, read from `/proc`.
//!
//! The `prometheus` crate's own collector wants `libc` and unsafe calls for two constants; the
//! kernel prints memory in kB and counts CPU in `USER_HZ`, which is 100 on every Linux ABI that
//! Weir runs on. Where `/proc` is missing, the series are missing: no guesses.

use std::fs;
use std::path::Path;

use prometheus::core::{Collector, Desc};
use prometheus::{Gauge, Opts, proto};

use super::gauges::whole;
use super::names;

/// Clock ticks a second in `/proc/self/stat` (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Reads `/proc` at every scrape.
pub(super) struct Process {
    open_fds: Gauge,
    max_fds: Gauge,
    resident: Gauge,
    cpu: Gauge,
    start: Gauge,
}

impl Process {
    pub(super) fn new() -> prometheus::Result<Self> {
        let gauge = |name: names::Name| Gauge::with_opts(Opts::new(name.id, name.help));
        Ok(Self {
            open_fds: gauge(names::OPEN_FDS)?,
            max_fds: gauge(names::MAX_FDS)?,
            resident: gauge(names::RESIDENT)?,
            cpu: gauge(names::CPU)?,
            start: gauge(names::START_TIME)?,
        })
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        [&self.open_fds, &self.max_fds, &self.resident, &self.cpu, &self.start]
            .into_iter()
            .flat_map(Collector::desc)
            .collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let stat = stat.as_deref().and_then(parse_stat);
        let readings = [
            (&self.open_fds, open_fds(Path::new("/proc/self/fd"))),
            (&self.max_fds, read("/proc/self/limits", max_fds)),
            (&self.resident, read("/proc/self/status", resident_bytes)),
            (&self.cpu, stat.map(|stat| stat.cpu_seconds)),
            (
                &self.start,
                stat.zip(read("/proc/stat", boot_time))
                    .map(|(stat, boot)| boot + stat.started_after_boot_seconds),
            ),
        ];
        let mut families = Vec::new();
        for (gauge, reading) in readings {
            let Some(reading) = reading else { continue };
            gauge.set(reading);
            families.extend(gauge.collect());
        }
        for family in &mut families {
            if family.name() == names::CPU.id {
                as_counter(family);
            }
        }
        families
    }
}

/// CPU time only grows; what is read as a number is shown as the counter that it is.
fn as_counter(family: &mut proto::MetricFamily) {
    family.set_field_type(proto::MetricType::COUNTER);
    for metric in family.mut_metric() {
        let mut counter = proto::Counter::default();
        counter.set_value(metric.get_gauge().get_value());
        metric.set_counter(counter);
    }
}

fn read(path: &str, parse: fn(&str) -> Option<f64>) -> Option<f64> {
    parse(&fs::read_to_string(path).ok()?)
}

fn open_fds(dir: &Path) -> Option<f64> {
    let count = fs::read_dir(dir).ok()?.count();
    // The directory that is being read is one of them.
    Some(whole(u64::try_from(count).ok()?.saturating_sub(1)))
}

fn max_fds(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Stat {
    cpu_seconds: f64,
    started_after_boot_seconds: f64,
}

/// Fields 14 and 15 (CPU) and 22 (start) of proc(5). The second field, the program's name, may
/// hold anything, spaces and brackets too, so that counting begins behind its last bracket.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    let began: f64 = fields.nth(6)?.parse().ok()?;
    Some(Stat { cpu_seconds: (user + system) / TICKS, started_after_boot_seconds: began / TICKS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let stat = "7 (we) ir (x) S 1 7 7 0 -1 0 1 2 3 4 250 50 0 0 20 0 9 0 12345 1 2";
        let expected = Stat { cpu_seconds: 3.0, started_after_boot_seconds: 123.45 };
        assert_eq!(parse_stat(stat), Some(expected));
        assert_eq!(parse_stat("7 (weir) S 1"), None);
    }

    #[test]
    fn lines_of_limits_and_status() {
        assert_eq!(max_fds("Max open files            1024   4096   files\n"), Some(1024.0));
        assert_eq!(max_fds("Max open files            unlimited unlimited files\n"), None);
        assert_eq!(resident_bytes("Name:\tweir\nVmRSS:\t     12 kB\n"), Some(12_288.0));
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
    }
}
