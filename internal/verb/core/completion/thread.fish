# fish completion for thread

function __thread_complete
    set -l words (commandline -opc)
    # As the program will see it, without quotes and backslashes.
    set -l cur (string unescape -- (commandline -ct))
    set -l program $words[1]
    set -e words[1]
    set -l found ($program __complete $words "$cur" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$cur"
    end
end

complete -c thread -f -a '(__thread_complete)'
