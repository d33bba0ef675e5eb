//! `man`: the manual page, shown by man(1) on a terminal, else as its source.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

use clap::CommandFactory;

use crate::arguments::Arguments;
use crate::console::{print, tell};
use crate::exit::{Done, Failure};

/// Shows the manual page on a terminal, and writes its source for man(1) into a file or pipe.
pub(crate) fn show() -> Done {
    let page = page().map_err(Failure::failed("cannot make the manual page"))?;
    if !std::io::stdout().is_terminal() {
        return print(&page);
    }
    if formatted(&page).unwrap_or(false) {
        return Ok(());
    }
    print(Arguments::command().render_long_help().to_string().as_bytes())?;
    tell(
        "there is no man(1) to show the manual page (Debian: apt install man-db); \
         `frevo man > frevo.1` writes its source, `frevo COMMAND --help` shows the options",
    );
    Ok(())
}

/// Gives the page to man(1). False when it did not show it.
fn formatted(page: &[u8]) -> std::io::Result<bool> {
    let mut man = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = man.stdin.take() {
        // The user may have left the pager before it has read the whole page, so an error is
        // ignored.
        let _ = input.write_all(page);
    }
    Ok(man.wait()?.success())
}

/// One page: the program, then each of its commands.
fn page() -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let mut command = Arguments::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    // The page refers to each command as a manual page, but here the commands are sections of one
    // page. So references are rewritten to `frevo NAME`.
    let text = String::from_utf8_lossy(&page);
    let lines = text.lines().map(|line| {
        let name = line.strip_prefix("frevo\\-").and_then(|line| line.strip_suffix("(1)"));
        name.map_or_else(|| line.to_owned(), |name| format!("frevo {name}"))
    });
    let mut page = (lines.collect::<Vec<_>>().join("\n") + "\n").into_bytes();
    sections(&command, &mut page)?;
    Ok(page)
}

fn sections(command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = sub.get_bin_name().unwrap_or_else(|| sub.get_name()).to_uppercase();
        writeln!(page, ".SH \"{name}\"")?;
        let man = clap_mangen::Man::new(sub.clone());
        // Synopsis, description and options belong to the section of this command, so their
        // headings are left out.
        let mut part = Vec::new();
        man.render_synopsis_section(&mut part)?;
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        man.render_extra_section(&mut part)?;
        let part = String::from_utf8_lossy(&part).replace(".SH ", ".SS ");
        page.write_all(part.as_bytes())?;
        sections(sub, page)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn the_page_names_no_other_page_of_its_own() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        assert!(page.contains("\nfrevo ls\n") && page.contains(".SH \"FREVO LS\""));
        for line in page.lines().filter(|line| line.contains("(1)")) {
            assert!(!line.contains("frevo"), "{line}");
        }
    }
}
