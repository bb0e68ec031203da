//! The tables of docs/stacks.md: those of stacks and options are generated from the declarations, and every part
//! exists. `BLESS=1 cargo test -p backchannel-stacks --test docs` writes the generated ones.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use backchannel_core::options::{Param, Preset};
use backchannel_stacks::config::{entries, options};

fn crate_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn value(preset: Preset) -> String {
    match preset {
        Preset::Number(number) => number.to_string(),
        Preset::Flag(flag) => flag.to_string(),
        Preset::Text(text) => text.to_owned(),
        Preset::Absent => "absent".to_owned(),
        Preset::Required(_) => "required".to_owned(),
    }
}

/// Each stack with the defaults that it changes.
fn stacks_table() -> String {
    let mut table = "| name | what it is | source | defaults that it changes |\n| --- | --- | --- | --- |\n".to_owned();
    for entry in entries() {
        let differs = |(param, base): (&Param, &Param)| {
            (param.default != base.default).then(|| format!("`{}: {}`", param.name, value(param.default)))
        };
        let changed: Vec<_> = entry.params.iter().zip(options()).filter_map(differs).collect();
        let _ = writeln!(table, "| `{}` | {} | {} | {} |", entry.name, entry.summary, entry.source, changed.join(", "));
    }
    table
}

/// Each option with its default and what it accepts.
fn options_table() -> String {
    let mut table = "| option | default | accepts | what it sets |\n| --- | --- | --- | --- |\n".to_owned();
    for option in options() {
        let accepts = match (option.min, option.max) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            (Some(min), None) => format!("{min} or more"),
            _ if option.choices.is_empty() => "true, false".to_owned(),
            _ => option.choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", "),
        };
        let _ = writeln!(table, "| `{}` | {} | {accepts} | {} |", option.name, value(option.default), option.help);
    }
    table
}

/// Replaces what stands between the markers of a table.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page lacks '{begin}'"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("the page lacks '{end}'"));
    format!("{before}{begin}{table}{end}{after}")
}

#[test]
fn the_tables_are_those_of_the_code() {
    let file = crate_folder().join("../../docs/stacks.md");
    let page = std::fs::read_to_string(&file).expect("the page");
    let expected = with_table(&with_table(&page, "stacks", &stacks_table()), "options", &options_table());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, expected).expect("the page can be written");
    } else {
        assert!(
            page == expected,
            "docs/stacks.md is out of date: BLESS=1 cargo test -p backchannel-stacks --test docs"
        );
    }
}

#[test]
fn every_file_of_the_crate_stands_in_the_page_and_every_file_of_the_page_in_the_crate() {
    let page = std::fs::read_to_string(crate_folder().join("../../docs/stacks.md")).expect("the page");
    let (_, parts) = page.split_once("## The parts").expect("the table of parts");
    let (parts, _) = parts.split_once("\n## ").expect("a section behind it");
    let source = crate_folder().join("src");
    let named: Vec<_> = parts.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")).collect();
    for name in &named {
        assert!(source.join(name).is_file(), "docs/stacks.md names {name}");
    }
    for entry in std::fs::read_dir(source).expect("the crate") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        let listed = named.contains(&name.as_str()) || ["lib.rs", "tests.rs"].contains(&name.as_str());
        assert!(listed || !name.ends_with(".rs"), "docs/stacks.md lacks {name}");
    }
}
