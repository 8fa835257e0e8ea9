use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::config::{Applies, Config, Folder, Sources, diff, hold_fixed, load, settings};
use crate::domain::{Endpoint, TenantId, UnixTime};
use crate::tenants::{Caps, Isolation, KeyDigest, OverOutput, Quota, tenant_id};

const POOL: &str = "[[pools]]\nmodel = \"tiny\"\naliases = [\"small\"]\n\
                    replicas = [\"http://127.0.0.1:8101\"]\n";
/// The digest of "foo".
const FOO: &str = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

fn sources(tenants: &str) -> Sources {
    Sources::only("weir.toml", &format!("{POOL}{tenants}"))
}

fn config(tenants: &str) -> Config {
    load(&sources(tenants)).unwrap()
}

fn faults(sources: &Sources) -> Vec<String> {
    let errors = load(sources).err().map(|errors| errors.0).unwrap_or_default();
    errors.iter().map(|error| error.to_string().replace("weir.toml:", "")).collect()
}

#[test]
fn a_tenant_is_what_its_table_says() {
    let config = config(&format!(
        "[[tenants]]\nname = \"search\"\nkeys = [\"{FOO}\"]\nweight = 2.5\nmodels = [\"small\"]\n\
         routes = [\"models\", \"chat_completions\"]\nexpires = \"2027-01-31\"\n\
         [[tenants]]\nname = \"crawl\"\nblocked = true\nexpires = \"2027-01-31T12:00:00Z\"\n"
    ));
    let search = config.tenants.holder(b"foo").unwrap();
    assert_eq!((&*search.name, search.id), ("search", tenant_id("search")));
    assert!(search.rights.model("small", Some("tiny")) && !search.rights.model("tiny", None));
    assert!(search.rights.route(Endpoint::Models) && !search.rights.route(Endpoint::Messages));
    // `date -u -d 2027-01-31 +%s`
    assert_eq!(search.rights.expires, Some(UnixTime::from_secs(1_801_353_600)));
    let crawl = config.tenants.named("crawl").unwrap();
    assert!(crawl.rights.blocked && crawl.keys.is_empty());
    assert_eq!(crawl.rights.expires, Some(UnixTime::from_secs(1_801_396_800)));
    assert!(config.warnings.iter().any(|warning| warning.path == "tenants[1].keys"));
}

#[test]
fn quotas_are_what_the_table_says_and_a_reload_changes_them() {
    let with = |rest: &str| config(&format!("[[tenants]]\nname = \"a\"\n{rest}"));
    let none = with("");
    assert_eq!(none.tenants.named("a").unwrap().quota, Quota::default());
    let some = with("requests_per_minute = 600\ntokens_per_minute = 400_000\nparallel = 8\n");
    let quota = some.tenants.named("a").unwrap().quota;
    assert_eq!(quota.requests_per_minute.map(NonZeroU32::get), Some(600));
    assert_eq!((quota.tokens_per_minute, quota.parallel), (Some(400_000), Some(8)));
    let changes = diff(&none, &some);
    let paths: Vec<_> = changes.iter().map(|change| &*change.path).collect();
    let expected = ["requests_per_minute", "tokens_per_minute", "parallel", "burst"];
    assert_eq!(paths, expected.map(|key| format!("tenants[\"a\"].{key}")));
    assert!(changes.iter().all(|change| change.applies == Applies::Live));
}

#[test]
fn caps_and_isolation_are_what_the_table_says() {
    let with = |rest: &str| config(&format!("[[tenants]]\nname = \"a\"\n{rest}"));
    let of = |config: &Config| Arc::clone(config.tenants.named("a").unwrap());
    let bare = of(&with(""));
    assert_eq!((bare.caps, &bare.isolation), (Caps::default(), &Isolation::Own));
    let some = of(&with(
        "max_input_tokens = 8\nmax_output_tokens = 9\nover_output = \"refuse\"\npriority = -3\n",
    ));
    let over_output = OverOutput::Refuse;
    let caps = Caps { input: Some(8), output: Some(9), over_output, priority: Some(-3) };
    assert_eq!(some.caps, caps);
    assert_eq!(of(&with("isolation = \"shared\"")).isolation, Isolation::Shared);
    assert_eq!(of(&with("isolation = \"x\"")).isolation, Isolation::Group("x".into()));
    let found = faults(&sources(
        "[[tenants]]\nname = \"a\"\nmax_output_tokens = 0\nover_output = \"cut\"\nisolation = \"a b\"\n",
    ));
    for (line, start) in
        [(8, "over_output: \"cut\""), (7, "max_output_tokens: 0"), (9, "isolation: \"a b\"")]
    {
        let start = format!("{line}: tenants[0].{start}");
        assert!(found.iter().any(|fault| fault.starts_with(&start)), "{start} in {found:#?}");
    }
    assert!(
        with("over_output = \"lower\"").warnings.iter().any(|w| w.path.ends_with("over_output"))
    );
}

#[test]
fn every_pools_policy_has_every_tenants_weight_in_the_order_of_ids() {
    let expected = [("a", 0.5), ("b", 1.5), ("c", 2.5), ("d", 3.5), ("e", 4.5)];
    let tenants = expected
        .map(|(name, weight)| format!("[[tenants]]\nname = \"{name}\"\nweight = {weight}\n"));
    let config = config(&tenants.concat());
    let listed = &config.pools[0].policy.tenants;
    assert!(listed.is_sorted_by_key(|tenant| tenant.id));
    let weights: BTreeMap<TenantId, f64> =
        listed.iter().map(|tenant| (tenant.id, tenant.weight)).collect();
    assert_eq!(weights, expected.map(|(name, weight)| (tenant_id(name), weight)).into());
}

#[test]
fn keys_come_from_the_file_a_mounted_folder_and_the_environment() {
    let mut sources = sources(&format!(
        "[[tenants]]\nname = \"a\"\nkeys = [\"{FOO}\"]\nkeys_folder = \"secrets/a\"\nkeys_env = \"A\"\n"
    ));
    let text = |text: &str| Ok(text.to_owned());
    let folder = Folder::from([
        ("one".to_owned(), text("sk-in-a-mounted-folder\n")),
        ("two".to_owned(), text(&format!("{}\n{FOO}\n", KeyDigest::of(b"by-digest")))),
    ]);
    sources.folders.insert("secrets/a".to_owned(), Ok(folder));
    let variable = "sk-in-a-variable-1 sk-in-a-variable-2".to_owned();
    sources.env.insert("A".to_owned(), Some(variable));
    let config = load(&sources).unwrap();
    assert_eq!(config.tenants.named("a").unwrap().keys.len(), 5, "one of six stands there twice");
    for key in ["foo", "sk-in-a-mounted-folder", "by-digest", "sk-in-a-variable-2"] {
        assert!(config.tenants.holder(key.as_bytes()).is_some(), "{key}");
    }
    assert!(config.tenants.holder(b"sk-in-a-variable-1 sk-in-a-variable-2").is_none());
}

#[test]
fn a_folder_or_variable_that_holds_no_keys_is_a_fault_and_says_no_secret() {
    let mut sources = sources(
        "[[tenants]]\nname = \"a\"\nkeys_folder = \"none\"\n\
         [[tenants]]\nname = \"b\"\nkeys_folder = \"empty\"\nkeys_env = \"EMPTY\"\n\
         [[tenants]]\nname = \"c\"\nkeys_folder = \"bad\"\nkeys_env = \"UNSET\"\n",
    );
    sources.folders.insert("none".to_owned(), Err("cannot be read: gone".to_owned()));
    sources.folders.insert("empty".to_owned(), Ok(Folder::new()));
    let bad = [("sha", Ok("sha256:planted".to_owned())), ("byte", Ok("planted\u{e9}".to_owned()))];
    let bad = bad.map(|(name, text)| (name.to_owned(), text));
    sources.folders.insert("bad".to_owned(), Ok(Folder::from(bad)));
    sources.env.insert("EMPTY".to_owned(), Some(" \n".to_owned()));
    sources.env.insert("UNSET".to_owned(), None);
    let found = faults(&sources);
    for start in [
        "7: tenants[0].keys_folder: \"none\" cannot be read: gone",
        "10: tenants[1].keys_folder: \"empty\" holds no key",
        "11: tenants[1].keys_env: EMPTY holds no key",
        "14: tenants[2].keys_folder: bad/byte holds a key that no header can carry",
        "15: tenants[2].keys_env: UNSET is not set",
    ] {
        assert!(found.iter().any(|line| line.starts_with(start)), "{start}\nin {found:#?}");
    }
    assert_eq!(found.len(), 5, "a folder's first fault stands for it: {found:#?}");
    assert!(!found.concat().contains("planted"), "{found:#?}");
}

#[test]
fn a_key_written_where_its_digest_belongs_is_not_said_back() {
    for keys in
        ["[\"sk-planted\"]", "\"sk-planted\"", "[[\"sk-planted\"]]", "{ k = \"sk-planted\" }"]
    {
        let found = faults(&sources(&format!("[[tenants]]\nname = \"a\"\nkeys = {keys}\n")));
        assert_eq!(found.len(), 1, "{keys}: {found:?}");
        assert!(found[0].starts_with("7: tenants[0].keys"), "{found:?}");
        assert!(!found[0].contains("planted"), "{found:?}");
    }
}

#[test]
fn a_short_key_is_warned_of() {
    let mut sources = sources("[[tenants]]\nname = \"a\"\nkeys_env = \"A\"\n");
    sources.env.insert("A".to_owned(), Some("hunter2".to_owned()));
    let config = load(&sources).unwrap();
    assert!(config.warnings.iter().any(|warning| warning.message.contains("can be guessed")));
    assert!(!format!("{:?}", config.warnings).contains("hunter2"));
}

#[test]
fn tenants_come_go_and_change_by_a_reload() {
    let tenant = |name: &str, rest: &str| format!("[[tenants]]\nname = \"{name}\"\n{rest}");
    let old = config(&(tenant("a", &format!("keys = [\"{FOO}\"]\n")) + &tenant("b", "")));
    let other = KeyDigest::of(b"bar");
    let new = config(
        &(tenant("c", "") + &tenant("a", &format!("keys = [\"{other}\"]\nblocked = true\n"))),
    );
    let changes: Vec<_> = diff(&old, &new).iter().map(ToString::to_string).collect();
    assert_eq!(
        changes,
        [
            "~ tenants[\"a\"].keys: 1 *** -> 1 *** (live: from now on; nothing running is cut)",
            "~ tenants[\"a\"].blocked: false -> true (live: from now on; nothing running is cut)",
            "+ tenants[\"c\"]: new tenant (live: its keys are taken from now on)",
            "- tenants[\"b\"]: tenant (live: its keys are refused from now on; what runs ends in peace)",
        ]
    );
    assert!(settings(&new).iter().all(|setting| !setting.path.starts_with("tenants")
        || (setting.applies == Applies::Live && !setting.value.contains("sha256"))));
}

#[test]
fn a_reload_cannot_open_a_public_address_to_strangers() {
    let server = "[server]\nlisten = \"0.0.0.0:8080\"\n";
    let tenants = "[[tenants]]\nname = \"a\"\n";
    let open = load(&Sources::only("", &format!("{server}{POOL}{tenants}"))).unwrap();
    assert!(open.warnings.iter().any(|warning| warning.message.contains("in the clear")));
    // Each of the two is right by itself: the second listens on loopback, but only after a
    // restart.
    let closed = load(&Sources::only("", POOL)).unwrap();
    let errors = hold_fixed(&open, closed).unwrap_err().to_string();
    assert!(errors.contains("0.0.0.0:8080 would be open to anyone until a restart"), "{errors}");
    let still = load(&Sources::only("", &format!("{POOL}{tenants}"))).unwrap();
    assert!(hold_fixed(&open, still).is_ok());
}
