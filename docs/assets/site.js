// The copy button of a block with commands takes the commands alone: no prompt (.gp), no output (.go).
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-clipboard-target]")
  const code = button && document.querySelector(button.dataset.clipboardTarget)
  if (!code || !code.querySelector(".gp")) return
  const commands = code.cloneNode(true)
  commands.querySelectorAll(".gp, .go").forEach((each) => each.remove())
  button.dataset.clipboardText = commands.textContent.replace(/\n(\s*\n)+/g, "\n").trim() + "\n"
}, true)

// In the search, a hyphen before a word asks for pages without it. Here it asks for an option, which has a mark in the index
// (scripts/site_hooks.py). Pages have every word of an option or of a name with hyphens, but for words that no index has.
const typed = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")
const unindexed = new Set("a and as at by for from in is no not of on only or other than the to too with".split(" "))
const search = document.querySelector("[data-md-component=search-query]")
if (search) {
  Object.defineProperty(search, "value", {
    get() {
      return typed.get.call(this).replace(/(?<!\S)(--?)?(\w+(?:-\w+)*)(?!\S)/g, (text, hyphens, name) => {
        const [first, ...others] = name.split("-")
        if (!hyphens && !others.length) return text
        const words = others.filter((word) => !unindexed.has(word))
        if (hyphens === "--") words.unshift(`\u2060${first}`)
        else if (!unindexed.has(first)) words.unshift(first)
        return words.map((word) => `+${word}*`).join(" ")
      })
    },
    set(text) {
      typed.set.call(this, text)
    },
  })
}
