# bash completion for thread

_thread() {
	local line=${COMP_LINE:0:COMP_POINT} words=() i piece cur help
	COMPREPLY=()
	# bash has split the line also at = and :, which are part of our words.
	# Pieces that touch are one word; the last one ends at the cursor.
	for ((i = 0; i <= COMP_CWORD; i++)); do
		piece=${COMP_WORDS[i]}
		if ((i > 0)) && [[ $line == [![:space:]]* ]]; then
			((i < COMP_CWORD)) || piece=$line
			words[${#words[@]} - 1]+=$piece
		else
			line=${line#"${line%%[![:space:]]*}"}
			((i < COMP_CWORD)) || piece=$line
			words+=("$piece")
		fi
		line=${line#"$piece"}
	done
	# What the shell would take away before the program sees it.
	for i in "${!words[@]}"; do
		words[i]=${words[i]//[\"\'\\]/}
	done
	cur=${words[${#words[@]} - 1]}
	# Replaced is only the last piece, so the rest of the word must not be repeated.
	local kept=$cur
	case $piece in
	[=:]) ;;
	*) kept=${cur%"${piece//[\"\'\\]/}"} ;;
	esac
	while IFS=$'\t' read -r cur help; do
		[[ $cur == */ ]] && compopt -o nospace
		cur=${cur#"$kept"}
		# Within quotes that are still open the text stands as it is.
		case $piece in
		\"*[!\"] | \'*[!\'] | [\"\']) ;;
		*)
			case $cur in
			\~/*) printf -v cur '~/%q' "${cur:2}" ;;
			*) printf -v cur %q "$cur" ;;
			esac
			;;
		esac
		COMPREPLY+=("$cur")
	done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}

complete -o default -F _thread thread
