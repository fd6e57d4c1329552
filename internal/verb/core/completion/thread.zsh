#compdef thread
# zsh completion for thread

_thread() {
	local line word
	local -a found further
	for line in "${(@f)$("${words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
		word=${line%%$'\t'*}
		[[ -n $word ]] || continue
		line=${word//:/\\:}:${line#*$'\t'}
		if [[ $word == */ ]]; then
			further+=("$line")
		else
			found+=("$line")
		fi
	done
	if (( $#found + $#further == 0 )); then
		_files
		return
	fi
	(( $#found )) && _describe thread found
	(( $#further )) && _describe thread further -S ''
	return 0
}

if [[ $funcstack[1] == _thread ]]; then
	_thread "$@"
else
	compdef _thread thread
fi
