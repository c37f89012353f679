-- For Neovim 0.11 and later: `vim.lsp.enable('weft')`.
return {
  cmd = { 'weft', 'lsp' },
  filetypes = { 'weft' },
  root_markers = { '.git' },
}
