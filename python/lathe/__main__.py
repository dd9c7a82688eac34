from lathe._command import main

main()
