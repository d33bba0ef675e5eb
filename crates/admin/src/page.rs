//! The page for browsers: files that are part of the program. They hold no data of the server.

use hyper::StatusCode;

use crate::answers::{Answer, answer};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type and content of each file.
const FILES: [(&str, &str, &str); 12] = [
    ("/", HTML, include_str!("../web/index.html")),
    ("/page/style.css", CSS, include_str!("../web/style.css")),
    ("/page/main.js", SCRIPT, include_str!("../web/main.js")),
    ("/page/password.js", SCRIPT, include_str!("../web/password.js")),
    ("/page/connection.js", SCRIPT, include_str!("../web/connection.js")),
    ("/page/form.js", SCRIPT, include_str!("../web/form.js")),
    ("/page/manage.js", SCRIPT, include_str!("../web/manage.js")),
    ("/page/charts.js", SCRIPT, include_str!("../web/charts.js")),
    ("/page/tables.js", SCRIPT, include_str!("../web/tables.js")),
    ("/page/format.js", SCRIPT, include_str!("../web/format.js")),
    ("/page/uplot.js", SCRIPT, include_str!("../web/uplot/uPlot.iife.min.js")),
    ("/page/uplot.css", CSS, include_str!("../web/uplot/uPlot.min.css")),
];

/// The page on which users change their own passwords.
pub(crate) fn password() -> Answer {
    answer(StatusCode::OK, HTML, include_str!("../web/password.html"))
}

/// The file at a path, if there is one.
pub(crate) fn file(path: &str) -> Option<Answer> {
    let (_, kind, content) = FILES.iter().find(|(of, ..)| *of == path)?;
    Some(answer(StatusCode::OK, kind, *content))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files of this project's own, without uPlot.
    fn own(kind: &str) -> Vec<(&'static str, &'static str)> {
        let own = FILES.iter().filter(|(path, of, _)| *of == kind && !path.contains("uplot"));
        own.map(|(path, _, content)| (*path, *content)).collect()
    }

    /// The texts between `before` and the next quotation mark.
    fn quoted<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
        text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn the_html_has_each_element_that_the_scripts_use_and_no_code() {
        let html = file("/").map(|_| FILES[0].2).unwrap();
        let ids = quoted(html, " id=\"");
        for (path, script) in own(SCRIPT) {
            let calls = ["byId(\"", " text(\"", " chart(\"", " table(\""];
            for id in calls.iter().flat_map(|call| quoted(script, call)) {
                assert!(ids.contains(&id), "{path} uses #{id}, which the page has not");
            }
            for chart in quoted(script, " chart(\"") {
                let legend = format!("{chart}-legend");
                assert!(ids.contains(&&*legend), "{path} uses #{legend}, which the page has not");
            }
            // Text from clients must never become HTML, so the script must not use these functions.
            for bad in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!script.contains(bad), "{path} has {bad}");
            }
        }
        assert!(ids.len() > 10);
        let unique: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len(), "an id twice: {ids:?}");
        for of in quoted(html, " for=\"").into_iter().chain(quoted(html, " aria-labelledby=\"")) {
            assert!(ids.contains(&of), "a label of #{of}");
        }
        for bad in [" style=", " onclick=", " onload=", "javascript:", "http://", "https://"] {
            assert!(!html.contains(bad), "{bad}");
        }
        for script in html.split("<script").skip(1) {
            assert!(script.contains(" src=\"") && script.contains("></script>"), "{script}");
        }
    }

    #[test]
    fn the_page_of_passwords_has_no_code_and_names_what_is_there() {
        let html = include_str!("../web/password.html");
        let ids = quoted(html, " id=\"");
        let script = include_str!("../web/password.js");
        for id in quoted(script, "part(\"").iter().chain(&quoted(html, " for=\"")) {
            assert!(ids.contains(id), "{id}");
        }
        for path in quoted(html, "src=\"").into_iter().chain(quoted(html, "href=\"page")) {
            let path =
                if path.starts_with('/') { format!("/page{path}") } else { format!("/{path}") };
            assert!(file(&path).is_some(), "{path}");
        }
        for bad in [" style=", " onclick=", "javascript:", "http://", "https://"] {
            assert!(!html.contains(bad), "{bad}");
        }
    }

    #[test]
    fn every_file_that_a_file_names_is_there() {
        let html = FILES[0].2;
        for path in quoted(html, "src=\"").into_iter().chain(quoted(html, "href=\"page")) {
            let path =
                if path.starts_with('/') { format!("/page{path}") } else { format!("/{path}") };
            assert!(file(&path).is_some(), "{path}");
        }
        for (from, script) in own(SCRIPT) {
            for path in quoted(script, "from \"./") {
                assert!(file(&format!("/page/{path}")).is_some(), "{from}: {path}");
            }
        }
        for (path, css) in own(CSS) {
            assert!(!css.contains("url(") && !css.contains("@import"), "{path}");
        }
        assert!(file("/page/../Cargo.toml").is_none() && file("/page/").is_none());
    }
}
