//! A sweep as one page: plots drawn here as SVG, no script, nothing fetched.

use std::fmt::Write as _;

use crate::domain::Slo;
use crate::load::{SweepLevel, SweepResult};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 36.0;
const TOP: f64 = 12.0;

/// A line of a plot.
struct Line {
    name: &'static str,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

impl Line {
    fn of(
        name: &'static str,
        colour: &'static str,
        levels: &[SweepLevel],
        pick: impl Fn(&SweepLevel) -> Option<f64>,
    ) -> Self {
        let points = levels.iter().filter_map(|level| Some((level.rate, pick(level)?))).collect();
        Self { name, colour, points }
    }
}

/// The whole page.
pub(super) fn report(result: &SweepResult, slo: &Slo, model: &str) -> String {
    let levels = &result.levels;
    let band = result.knee.as_ref().and_then(|knee| Some((knee.found.low?, knee.found.high?)));
    let target = slo.ttft.map(|ttft| ttft.as_secs_f64() * 1e3);
    let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
    let ttft = [
        Line::of("p50", "#2a7", levels, |level| ms(level.ttft_p50)),
        Line::of("p95", "#26c", levels, |level| ms(level.judgement.ttft_p95.map(|one| one.value))),
        Line::of("p99", "#c52", levels, |level| ms(level.ttft_p99)),
    ];
    let itl =
        [Line::of("p99", "#26c", levels, |level| ms(level.judgement.itl_p99.map(|itl| itl.value)))];
    let goodput = [Line::of("good/s", "#2a7", levels, |level| Some(level.goodput_per_second))];
    let open = [Line::of("in flight", "#26c", levels, |level| Some(level.judgement.in_flight))];
    let most = target.map(|target| target * 3.0);
    let itl_target = slo.itl.map(|itl| itl.as_secs_f64() * 1e3);
    let plots = [
        ("TTFT, ms, against requests a second", plot(&ttft, band, target, most)),
        ("Gaps between frames, ms", plot(&itl, band, itl_target, None)),
        ("Goodput, requests a second within TTFT", plot(&goodput, band, None, None)),
        ("Calls in flight, mean", plot(&open, band, None, None)),
    ];
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Sweep of {0}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>body{{font:15px system-ui,sans-serif;\
         max-width:760px;margin:2em auto;padding:0 1em}}table{{border-collapse:collapse}}\
         td,th{{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:right}}</style>\n\
         <h1>Sweep of {0}</h1>\n<p>{1}</p>\n",
        escaped(model),
        escaped(&said(result)),
    );
    for (title, plot) in plots {
        let wrote = write!(page, "<h2>{title}</h2>\n{plot}\n");
        debug_assert!(wrote.is_ok(), "a String takes any text");
    }
    page.push_str("<h2>Every rate</h2>\n<table><tr><th>rate<th>runs<th>verdict<th>why</tr>\n");
    for level in levels {
        let wrote = writeln!(
            page,
            "<tr><td>{:.2}<td>{}<td>{:?}<td>{}</tr>",
            level.rate,
            level.runs,
            level.judgement.verdict,
            escaped(&level.judgement.why)
        );
        debug_assert!(wrote.is_ok(), "a String takes any text");
    }
    page.push_str("</table></html>\n");
    page
}

fn said(result: &SweepResult) -> String {
    let mut text = match &result.knee {
        None => "No rate passed.".to_owned(),
        Some(knee) => format!(
            "The knee lies between {:.2} and {} requests a second, with {:.1} calls in flight; \
             {:?} binds. Below it the targets hold, above it they do not.",
            knee.found.low.unwrap_or(0.0),
            knee.found.high.map_or("an unknown number of".to_owned(), |high| format!("{high:.2}")),
            knee.in_flight,
            knee.binding,
        ),
    };
    if result.quick {
        text.push_str(" Runs were shortened: not a figure to keep.");
    }
    if !result.finished {
        text.push_str(" The search had not ended.");
    }
    text
}

/// Lines over the same x, the knee's interval as a band and the target as a dashed line. What lies
/// above `most` is cut off at the top.
fn plot(
    lines: &[Line],
    band: Option<(f64, f64)>,
    target: Option<f64>,
    most: Option<f64>,
) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let right = all().map(|point| point.0).fold(0.0, f64::max);
    let high = all().map(|point| point.1).chain(target).fold(0.0, f64::max);
    let high = high.min(most.unwrap_or(f64::INFINITY)) * 1.05;
    if right <= 0.0 || high <= 0.0 {
        return "<p>Not measured.</p>".to_owned();
    }
    let x = |value: f64| LEFT + value / (right * 1.03) * (WIDTH - LEFT - 12.0);
    let y = |value: f64| HEIGHT - BOTTOM - (value.min(high) / high) * (HEIGHT - BOTTOM - TOP);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" role=\"img\">");
    let mut put = |text: std::fmt::Arguments<'_>| {
        let wrote = svg.write_fmt(text);
        debug_assert!(wrote.is_ok(), "a String takes any text");
    };
    if let Some((low, high_rate)) = band {
        put(format_args!(
            "<rect x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#fd8\" opacity=\".6\"/>",
            x(low),
            (x(high_rate) - x(low)).max(1.0),
            HEIGHT - BOTTOM - TOP
        ));
    }
    for step in 0..=4 {
        let part = f64::from(step) / 4.0;
        let (up, across) = (high * part, right * 1.03 * part);
        put(format_args!(
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{2:.1}\" y2=\"{2:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{1:.1}\" y=\"{2:.1}\" font-size=\"11\" text-anchor=\"end\">{3}</text>",
            WIDTH - 12.0,
            LEFT - 6.0,
            y(up),
            short(up)
        ));
        put(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"middle\">{}</text>",
            x(across),
            HEIGHT - BOTTOM + 16.0,
            short(across)
        ));
    }
    if let Some(target) = target.filter(|target| *target <= high) {
        put(format_args!(
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#a00\" stroke-dasharray=\"5 4\"/>",
            WIDTH - 12.0,
            y(target)
        ));
    }
    for (number, line) in (0_u32..).zip(lines) {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)))
            .collect();
        put(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{}\" font-size=\"12\" fill=\"{1}\">{}</text>",
            points.join(" "),
            line.colour,
            LEFT + 8.0 + f64::from(number) * 70.0,
            TOP + 12.0,
            line.name
        ));
    }
    svg.push_str("</svg>");
    svg
}

fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
