use super::*;

const CONTEXT: Context<'static> = Context { node_name: "lab", seen: "2026-01-02T03:04:05.6Z" };

fn problems(text: &str) -> Vec<String> {
    read(text.as_bytes(), "/m/web.yaml", CONTEXT).1.iter().map(ToString::to_string).collect()
}

#[test]
fn play() {
    for t in [
        "a: b: c\n",
        "a: [1, 2\n",
        "a: 1\na: 2\n",
        "\ta: 1\n",
        "",
        "# x\n",
        "---\n",
        "x",
        "- 1",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {1: x}}\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: Y, image: a}]}\n",
        "{\n\t\"kind\": \"Pod\",\n\t\"apiVersion\":\"v1\", \"x\": \"a\\/b\\ud83d\\ude00\"}",
        "{\"kind\": \"Pod\"",
        "a: *b\n",
        "a: !!binary xx\n",
        "a: .inf\n",
        "a: 99999999999999999999999999999999999999999999999999\n",
        "%YAML 1.1\n---\nkind: Foo\n",
        "kind: Pod\n...\n---\nkind: Bar\n",
    ] {
        println!("{t:?}\n   {:#?}", problems(t));
    }
    let deep = "[".repeat(10_000);
    println!("{:#?}", problems(&deep));
    let deep: String = (0..200).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    println!("{:#?}", problems(&deep));
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (p, c) in ('a'..'i').zip('b'..='i') {
        bomb += &format!("{c}: &{c} [*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p}]\n");
    }
    println!("{:#?}", problems(&bomb));
    let scalar = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 99].join(","));
    println!("{:#?}", problems(&scalar));
}
